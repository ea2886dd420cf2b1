/* GPUs that hold a model, and predicted times on them. */
#include "app/plan/bare.h"

#include <math.h>
#include <string.h>

/* What kernels reach of a data sheet, as docs/benchmarks/gpu-predicted.md predicts for an H100: 0.92 of the bandwidth
 * can be read, of which a GEMM of one token reaches 0.96. Matrix products reach 0.57 of mma.sync's peak, which on Hopper
 * and later is 0.62 of the sheet's. A layer waits 20 us for launches and first bytes, and a step 50 us for the rest. */
#define SHARE_OF_BANDWIDTH (0.92 * 0.96)
#define SHARE_OF_PEAK 0.57
#define LAYER_US 20.0
#define STEP_US 50.0

static const uint32_t points[] = {1, 8, 32, 64, 128, 256, 512, 1024, 2048, 8192};

uint64_t bare_kv_bytes(const struct engine_plan *plan, uint32_t context, uint32_t batch)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < plan->n_kv_groups; g++)
        bytes += batch * engine_plan_request_bytes(plan, g, context);
    return bytes;
}

/* Attention's multiplications for a token and a position that it sees, with what windows leave of them on average. */
static double pair_flops(const struct bare_model *m, const struct engine_plan *plan)
{
    const double context = plan->max_model_len;
    double flops = 0;
    for (uint32_t l = 0; l < m->config->n_layers; l++) {
        const struct model_block *block = model_layer_block(&m->config->layers[l], BLOCK_ATTENTION);
        if (!block)
            continue;
        const struct model_attention *a = &block->attention;
        const double seen = a->mask == MASK_WINDOW && a->window < context ? a->window / context : 1; /* sinks are few */
        flops += 2.0 * a->n_q_heads * (a->k_dim + a->v_dim) * seen;
    }
    return flops;
}

void bare_gpu_cost(const struct bare_model *m, const struct engine_plan *plan, const struct k_device *gpu,
                   uint32_t n_gpus, struct sched_cost *out)
{
    struct bare_weights w;
    bare_weights(m, n_gpus, plan->planner, &w);
    const double bandwidth = gpu->bandwidth * SHARE_OF_BANDWIDTH, flops = gpu->mma_flops * SHARE_OF_PEAK;
    const double head = (double)m->config->vocab_size * m->config->hidden_size;
    const double active = (double)w.active_parameters > head ? (double)w.active_parameters - head : 0;
    const double share = w.bytes ? (double)w.step_bytes / (double)w.bytes : 1;
    memset(out, 0, sizeof *out);
    out->n_points = sizeof points / sizeof points[0];
    for (uint32_t i = 0; i < out->n_points; i++) {
        /* Tokens choose experts independently. */
        const double read = share < 1 ? (double)w.bytes * (1 - pow(1 - share, points[i])) : (double)w.step_bytes;
        const double memory_us = read / bandwidth * 1e6, compute_us = 2 * active * points[i] / flops * 1e6;
        out->points[i].n_tokens = points[i];
        out->points[i].us = sqrt(memory_us * memory_us + compute_us * compute_us) + LAYER_US * m->config->n_layers +
                            STEP_US;
    }
    uint64_t read = 0;
    for (uint32_t g = 0; g < plan->n_kv_groups; g++)
        read += engine_plan_read_bytes(plan, g, plan->max_model_len);
    out->context_us = (double)read / plan->max_model_len / bandwidth * 1e6;
    out->pair_us = pair_flops(m, plan) / n_gpus / flops * 1e6;
    out->logit_us = 2 * head / n_gpus / flops * 1e6;
}

struct bare_times bare_predict(const struct sched_cost *cost, const struct engine_plan *plan, uint32_t context,
                               uint32_t batch)
{
    struct sched_shape step = {0};
    struct bare_times times = {0};
    if (!cost->n_points)
        return times;
    for (uint32_t i = 0; i < batch; i++)
        sched_shape_add(&step, context - 1, 1, 1);
    times.first_token_s = (sched_cost_prefill_us(cost, 0, context, plan->max_num_batched_tokens) + cost->logit_us) /
                          1e6;
    times.token_s = sched_cost_us(cost, &step) / 1e6;
    times.tokens_per_s = times.token_s > 0 ? batch / times.token_s : 0;
    return times;
}

/* Whether n_gpus hold it; if they do, fills *out. */
static bool holds(const struct bare_model *m, const struct engine_options *options, uint32_t context, uint32_t batch,
                  const struct k_device *gpu, uint32_t n_gpus, struct bare_fit *out)
{
    struct engine_options o = *options;
    struct engine_plan plan;
    struct sched_cost cost;
    o.device = gpu->name;
    if (bare_plan(m, &o, n_gpus, context, batch, &plan, NULL) != QUIRE_OK)
        return false;
    const uint64_t kv = bare_kv_bytes(&plan, context, batch);
    const uint64_t rest = engine_plan_needed_bytes(&plan) - plan.bytes[PLAN_KV] + plan.driver_bytes;
    if (rest + kv > plan.device_budget)
        return false;
    out->n_gpus = n_gpus;
    out->used_bytes = rest + kv;
    out->budget_bytes = plan.device_budget;
    out->kv_tokens = kv ? (uint64_t)((unsigned __int128)(plan.device_budget - rest) * batch * context / kv) : 0;
    bare_gpu_cost(m, &plan, gpu, n_gpus, &cost);
    out->times = bare_predict(&cost, &plan, context, batch);
    return true;
}

/* Tries weights made at load, from the widest, each with the KV cache as it is and in 8 bits. */
static bool holds_with_flags(const struct bare_model *m, const struct engine_options *options, uint32_t context,
                             uint32_t batch, const struct k_device *gpu, uint32_t n_gpus, struct bare_fit *out)
{
    static const char *const makes[] = {"fp8", "int4"};
    const bool can_make = k_format_is_plain(m->format.layers);
    for (uint32_t i = 0; i <= (can_make ? 2 : 0); i++)
        for (uint32_t kv = 0; kv < 2; kv++) {
            struct engine_options o = *options;
            const struct bare_format *made = i ? bare_format_find(makes[i - 1]) : NULL;
            const struct bare_model other = made ? bare_with(m, made) : *m;
            out->made = made;
            out->kv_dtype = kv ? "fp8" : NULL;
            o.kv_cache_dtype = kv ? "fp8" : o.kv_cache_dtype;
            if ((made || kv) && holds(&other, &o, context, batch, gpu, n_gpus, out))
                return true;
        }
    *out = (struct bare_fit){0};
    return false;
}

void bare_fit_gpu(const struct bare_model *m, const struct engine_options *options, uint32_t context, uint32_t batch,
                  const struct k_device *gpu, struct bare_fits *out)
{
    *out = (struct bare_fits){.gpu = gpu};
    const uint32_t least = options->tensor_parallel_size > 1 ? options->tensor_parallel_size : 1;
    const uint32_t most = least > 1 ? least : BARE_MAX_GPUS; /* a number that was asked for is the only one */
    for (uint32_t n = least; n <= most && !out->planned.n_gpus; n *= 2)
        holds(m, options, context, batch, gpu, n, &out->planned);
    const uint32_t end = out->planned.n_gpus ? out->planned.n_gpus : most + 1;
    for (uint32_t n = least; n < end && !out->fewest.n_gpus; n *= 2)
        holds_with_flags(m, options, context, batch, gpu, n, &out->fewest);
}
