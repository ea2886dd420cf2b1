#include "kernels/cuda/plan/plan.h"

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
