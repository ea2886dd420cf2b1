#include "engine/options.h"

/* Pins may use half of the blocks, so that as many are left for what changes. */
#define DEFAULT_STEPS \
    .scheduling_policy = "fcfs", .batching = "continuous", .preemption_mode = "auto", .max_pinned_percent = 50

void step_options_default(struct step_options *options)
{
    *options = (struct step_options){DEFAULT_STEPS, .speculative = SPECULATIVE_CONFIG_DEFAULT};
}

const struct step_options *engine_step_options(const struct engine_options *options)
{
    static const struct step_options defaults = {DEFAULT_STEPS, .speculative = SPECULATIVE_CONFIG_DEFAULT};
    return options->steps ? options->steps : &defaults;
}

void engine_options_default(struct engine_options *options)
{
    *options = (struct engine_options){
        .device = "auto",
        .task = "auto",
        .dtype = "auto",
        .kv_cache_dtype = "auto",
        .gemm_form = "auto",
        .invariance = "strict",
        .activation_dtype = "auto",
        .cpu_bind = "auto",
        .prefix_caching = true,
        .prefix_cache_eviction = "lru",
    };
}
