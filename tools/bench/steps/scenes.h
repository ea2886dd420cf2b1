/* The scenes (tools/bench/steps/steps.h) of `quire bench steps`: they cover the steps of a server, as far as the bounds
 * allow. Pure arithmetic; any thread. */
#ifndef QUIRE_TOOLS_BENCH_SCENES_H
#define QUIRE_TOOLS_BENCH_SCENES_H

#include "tools/bench/steps/steps.h"

struct bench_scene_bounds {
    uint32_t max_seqs; /* that may run at once, at most the step's tokens */
    uint32_t most_tokens; /* of prompts in a step */
    uint32_t most_logits; /* of a step; rows with drafts share them */
    uint32_t max_context;
    /* request i of a scene may have a context of n_cached / (i + 1): many short ones, or few long ones */
    uint32_t n_cached;
    uint32_t block_tokens; /* contexts are whole blocks */
};

/* The longest context of request i. */
uint32_t bench_scene_context(const struct bench_scene_bounds *bounds, uint32_t i);
/* Number of prefixes to fill: up to the first request that would have none. */
uint32_t bench_scene_n_prefixes(const struct bench_scene_bounds *bounds);

/* The caller frees *out. QUIRE_NO_MEMORY. */
int bench_scenes_make(const struct bench_scene_bounds *bounds, struct bench_scene **out, size_t *n,
                      struct quire_error *err);

#endif
