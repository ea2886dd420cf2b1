/* The memory of the operations on experts: the router's logits; or a GEMM's list (moe/list.h), then its activations as
 * factors or int8, by token, or by choice where each choice has an input of its own, and last the sums of waiting
 * segments. */
#include "kernels/cuda/plan/plan.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t input_bytes(uint32_t n_cols)
{
    return max_u64(cuda_gemm_factor_stride(n_cols) * UINT64_C(2), cuda_quant_rounded_bytes(n_cols));
}

uint64_t cuda_moe_workspace_bytes(const struct k_plan_dims *dims)
{
    const uint64_t n_tokens = max_u64(dims->n_tokens, dims->n_logits), n_choices = n_tokens * dims->n_used;
    if (dims->n_experts == 0)
        return 0;
    /* A GEMM that rounds by choice takes as many tokens at a time as leave n_tokens rows, or one token. */
    const uint64_t inputs = max_u64(max_u64(n_tokens, dims->n_used) * input_bytes(dims->max_gemm_cols),
                                    n_choices * input_bytes(dims->choice_cols));
    return max_u64(n_tokens * dims->n_experts * 4,
                   cuda_moe_list_bytes(n_choices) + inputs + 256 + CUDA_MOE_WAITING_BYTES);
}
