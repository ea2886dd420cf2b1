/* Finds --attention-window and --attention-sinks of a recorded engine. A recording has each KV group's window and sinks,
 * after the options have changed the model's; which of the windows the options gave follows from the model. */
#ifndef QUIRE_APP_REPLAY_STREAMING_H
#define QUIRE_APP_REPLAY_STREAMING_H

#include "engine/model/config.h"
#include "memory/kv_cache.h"

/* kv: of the recording. config: as the model's files describe it. Both results are 0 if the engine had no such options. */
struct replay_streaming {
    uint32_t window, sinks;
} replay_streaming_of(const struct kv_config *kv, const struct model_config *config);

#endif
