/* Which drafters an engine has, by its options and its plan; and what memory they take, in the host. */
#ifndef QUIRE_ENGINE_DRAFTERS_H
#define QUIRE_ENGINE_DRAFTERS_H

#include "base/status.h"
#include "engine/plan.h"
#include "speculation/config.h"
#include "speculation/drafter.h"

#include <stdint.h>

/* Who guesses, in the order in which they are asked. */
enum draft_source {
    FROM_REQUEST, /* `prediction` */
    FROM_METHOD,  /* the server's */
    N_DRAFT_SOURCES
};

uint64_t drafters_bytes(const struct speculative_config *config, const struct engine_plan *plan);
/* Into out, those that there are. The caller destroys them, also after a failure. */
int drafters_create(const struct speculative_config *config, const struct engine_plan *plan,
                    struct drafter *out[N_DRAFT_SOURCES], struct quire_error *err);

#endif
