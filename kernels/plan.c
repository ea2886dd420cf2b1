#include "kernels/cpu/attention.h"
#include "kernels/cuda/plan/plan.h"

#include <string.h>

/* Sampling needs a copy of one row of logits for each thread. A GEMM may lay its input out anew: 16 tokens by 32 columns at a time, 4 bytes each. */
static int plan_host(const struct k_plan_dims *dims, bool is_cpu, struct k_plan_bytes *out)
{
    uint64_t n_threads = dims->n_threads ? dims->n_threads : k_default_threads();
    uint64_t n_tokens = dims->n_tokens > dims->n_logits ? dims->n_tokens : dims->n_logits;
    *out = (struct k_plan_bytes){
        .gemm = (n_tokens + 15) / 16 * 16 * (((uint64_t)dims->max_gemm_cols + 31) / 32 * 32) * sizeof(float),
        .attention = is_cpu ? cpu_attn_workspace_bytes(dims, n_threads) : 0,
        .sample = n_threads * dims->n_vocab * sizeof(float),
    };
    return QUIRE_OK;
}

int k_plan_workspace(const char *backend_name, const struct k_plan_dims *dims, struct k_plan_bytes *out,
                     struct quire_error *err)
{
    bool is_cpu = strcmp(backend_name, "cpu") == 0;
    if (is_cpu || strcmp(backend_name, "ref") == 0)
        return plan_host(dims, is_cpu, out);
    if (strcmp(backend_name, "cuda") == 0) {
        *out = (struct k_plan_bytes){
            .gemm = cuda_gemm_workspace_bytes(dims),
            .attention = cuda_attention_workspace_bytes(dims),
            .attention_plan = cuda_attention_plan_bytes(dims),
            .sample = cuda_sample_workspace_bytes(dims),
        };
        return QUIRE_OK;
    }
    return quire_fail(err, QUIRE_UNSUPPORTED, "backend %s: this build cannot plan its memory", backend_name);
}

/* Our kernels for GPUs have gate and up in registers; cuBLASLt's have not. */
bool k_plan_needs_gate_up(const char *backend_name, const struct k_plan_dims *dims)
{
    return strcmp(backend_name, "cuda") != 0 || dims->not_invariant;
}

uint64_t k_plan_weight_bytes(const char *backend_name, enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols)
{
    return strcmp(backend_name, "cuda") == 0 ? cuda_weight_bytes(dtype, n_rows, n_cols) : 0;
}
