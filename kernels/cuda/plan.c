#include "kernels/cuda/plan.h"

/* Rows begin on 16 bytes, which is what one lane reads. */
uint64_t cuda_weight_row_stride(enum k_dtype dtype, uint32_t n_cols)
{
    return ((uint64_t)n_cols * k_dtype_bytes(dtype) + 15) / 16 * 16;
}

/* The driver deals out 2 MiB at a time and lets what is smaller share it. */
uint64_t cuda_weight_bytes(enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols)
{
    const uint64_t page = UINT64_C(2) << 20;
    uint64_t bytes = n_rows * cuda_weight_row_stride(dtype, n_cols) + (dtype == K_BF16 ? n_rows : 0);
    if (bytes > page / 2)
        return (bytes + page - 1) / page * page;
    return (bytes + 255) / 256 * 256;
}

/* Generous figures until the files beside the code have theirs. */
uint64_t cuda_attention_workspace_bytes(const struct k_plan_dims *dims)
{
    uint64_t n_splits = (uint64_t)dims->n_seqs * (dims->max_model_len / 512 + 1) + dims->n_tokens;
    return n_splits * dims->n_q_heads * (dims->head_dim + 2) * sizeof(float) * 2;
}

uint64_t cuda_attention_plan_bytes(const struct k_plan_dims *dims)
{
    return ((uint64_t)dims->n_seqs * (dims->max_model_len / 512 + 2) + dims->n_tokens) * 64;
}
