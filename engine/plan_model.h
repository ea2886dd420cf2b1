/* The memory plan of a model, with all its ranks and its draft model, from the files of its directory: config.json and the
 * headers of the weights. `quire plan` prints it. Needs no device. No state; any thread. */
#ifndef QUIRE_ENGINE_PLAN_MODEL_H
#define QUIRE_ENGINE_PLAN_MODEL_H

#include "base/status.h"
#include "engine/plan.h"
#include "engine/stats.h"

/* The part of one rank. */
struct engine_plan_rank {
    uint32_t first_layer, end_layer, n_q_heads;
    uint64_t weight_bytes, kv_bytes, swap_bytes, total_bytes;
    uint64_t device_bytes; /* total on its GPU, including the driver's part; 0: it uses host memory */
};

/* The weights of the whole model, and what one token of an answer takes of them. */
struct engine_token_cost {
    uint64_t parameters, active_parameters;
    uint64_t weight_bytes; /* that its step reads: not the experts of others, of untied embeddings a row */
};
/* The KV that one request of n_tokens holds at most, of one group of the plan. */
static inline uint64_t engine_plan_request_bytes(const struct engine_plan *plan, uint32_t group, uint32_t n_tokens)
{
    return engine_plan_request_blocks(plan, group, n_tokens) * plan->groups[group].block_bytes;
}

/* The KV that the step of one token reads behind n_tokens others, of one group of the plan: of a window no more than it and its
 * sinks. */
static inline uint64_t engine_plan_read_bytes(const struct engine_plan *plan, uint32_t group, uint32_t n_tokens)
{
    const uint32_t window = plan->groups[group].window ? plan->groups[group].window + plan->groups[group].n_sinks : 0;
    return plan->groups[group].block_bytes / plan->block_tokens * (window && window < n_tokens ? window : n_tokens);
}

/* Writes the model's config, which the caller frees (model_config_free; NULL on failure), and rank 0's plan.
 * ranks[0..plan->n_ranks) are written if there are several.
 * options->model_dir is the model's directory. Errors as engine_open() reports them for the same options and files. */
int engine_plan_model(const struct engine_options *options, struct model_config **config,
                      struct engine_token_cost *cost, struct engine_plan *plan,
                      struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err);

/* Counts the parameters of a model from the headers of its weights, as engine_token_cost has them. config describes it.
 * Errors as engine_open() reports them for the same files. */
int engine_plan_parameters(const char *model_dir, const struct model_config *config, uint64_t *out,
                           struct quire_error *err);

/* Memory on the device, including the weights and without the driver's part. */
static inline uint64_t engine_plan_needed_bytes(const struct engine_plan *plan)
{
    return engine_plan_device_bytes(plan) + plan->bytes[PLAN_WEIGHTS] + plan->bytes[PLAN_DRAFT_WEIGHTS];
}

#endif
