/* Selects the drafters of an engine by its options and its plan, and computes their host memory. */
#ifndef QUIRE_ENGINE_DRAFTERS_H
#define QUIRE_ENGINE_DRAFTERS_H

#include "base/status.h"
#include "engine/plan.h"
#include "speculation/config.h"
#include "speculation/drafter.h"

#include <stdint.h>

/* The sources of drafts, in the order in which they are queried. */
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
