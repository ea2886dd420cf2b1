/* Options for tests of engines: of steps, for those that return engine_options by value, and of small engines. */
#ifndef QUIRE_TESTS_ENGINE_STEP_OPTIONS_H
#define QUIRE_TESTS_ENGINE_STEP_OPTIONS_H

#include "engine/options.h"

/* Defaults, valid until seven further calls in the same file. */
static inline struct step_options *client_steps(void)
{
    static struct step_options all[8];
    static uint32_t n;
    struct step_options *out = &all[n++ % 8];
    step_options_default(out);
    return out;
}

/* One thread, and the defaults but for the number of KV blocks. */
static inline struct engine_options client_options(uint32_t n_kv_blocks)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.n_threads = 1;
    o.num_kv_blocks = n_kv_blocks;
    return o;
}

/* Steps and sequences so small that eight requests at once have several chunks and, with few blocks, preemptions. */
static inline struct engine_options client_small_options(uint32_t n_kv_blocks)
{
    struct engine_options o = client_options(n_kv_blocks);
    o.block_size = 8;
    o.max_model_len = 128;
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 64;
    return o;
}

#endif
