#include "kernels/planners.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/lane_rows.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/repacked.h"
#include "kernels/segments.h"

#include <string.h>

/* ---- host backends ---- */

#define HOST_MICRO_BATCH_TOKENS 64u

/* Sampling needs a copy of one row of logits for each thread. A GEMM may repack its input: 16 tokens by 32 columns at a
 * time, 4 bytes each. Each segment may end in partial tiles. */
static void ref_workspace(const struct k_plan_dims *dims, struct k_plan_bytes *out)
{
    uint64_t n_threads = dims->n_threads ? dims->n_threads : k_default_threads();
    uint64_t n_tokens = dims->n_tokens > dims->n_logits ? dims->n_tokens : dims->n_logits;
    *out = (struct k_plan_bytes){
        .gemm = (n_tokens + 15) / 16 * 16 * (((uint64_t)dims->max_gemm_cols + 31) / 32 + K_SEGMENTS) * 32 *
                sizeof(float),
        .sample = n_threads * dims->n_vocab * sizeof(float),
    };
    /* The router's logits, or one choice's GEMM. */
    const uint64_t logits = n_tokens * dims->n_experts,
                   one = 16 * (((uint64_t)dims->max_gemm_cols + 31) / 32 + K_SEGMENTS) * 32;
    if (dims->n_experts > 0)
        out->moe = (logits > one ? logits : one) * sizeof(float);
}

static void cpu_workspace(const struct k_plan_dims *dims, struct k_plan_bytes *out)
{
    ref_workspace(dims, out);
    const uint64_t n_threads = dims->n_threads ? dims->n_threads : k_default_threads();
    if (dims->n_tokens >= CPU_LANE_ROWS_TOKENS || dims->n_logits >= CPU_LANE_ROWS_TOKENS)
        out->gemm += n_threads * cpu_lane_rows_floats(dims->max_gemm_cols) * sizeof(float);
    out->attention = cpu_attn_workspace_bytes(dims, n_threads);
    if (dims->n_experts > 0) {
        const uint32_t n_tokens = dims->n_tokens > dims->n_logits ? dims->n_tokens : dims->n_logits;
        const struct cpu_moe_layout layout = cpu_moe_layout(n_tokens, dims->n_used, dims->n_experts,
                                                            dims->max_gemm_cols, dims->expert_rows);
        out->moe = layout.total > out->moe ? layout.total : out->moe;
    }
}

static bool host_needs_gate_up(const struct k_plan_dims *dims)
{
    (void)dims;
    return true;
}

static uint64_t host_weight_bytes(struct k_format format, uint32_t n_experts, uint32_t n_rows, uint32_t n_cols)
{
    (void)format;
    (void)n_experts;
    (void)n_rows;
    (void)n_cols;
    return 0;
}

static uint64_t cpu_weight_bytes(struct k_format format, uint32_t n_experts, uint32_t n_rows, uint32_t n_cols)
{
#if defined(QUIRE_CPU_BACKEND)
    return n_experts * cpu_repacked_bytes(format, n_rows, n_cols);
#else
    return host_weight_bytes(format, n_experts, n_rows, n_cols);
#endif
}

const struct k_planner ref_planner = {
    .name = "ref",
    .on_host = true,
    .micro_batch_tokens = HOST_MICRO_BATCH_TOKENS,
    .workspace = ref_workspace,
    .needs_gate_up = host_needs_gate_up,
    .weight_bytes = host_weight_bytes,
};
const struct k_planner cpu_planner = {
    .name = "cpu",
    .on_host = true,
    .micro_batch_tokens = HOST_MICRO_BATCH_TOKENS,
    .workspace = cpu_workspace,
    .needs_gate_up = host_needs_gate_up,
    .weight_bytes = cpu_weight_bytes,
};

/* ---- all ---- */

const struct k_planner *k_planner_find(const char *device)
{
    static const struct k_planner *const planners[] = {&ref_planner, &cpu_planner, &cuda_planner};
    for (size_t i = 0; i < sizeof planners / sizeof planners[0]; i++) {
        size_t n = strlen(planners[i]->name);
        if (strncmp(device, planners[i]->name, n) == 0 &&
            (device[n] == '\0' || (device[n] == ':' && !planners[i]->on_host)))
            return planners[i];
    }
    return NULL;
}
