/* The memory that a GEMM takes: the factors of the activations, 2 bytes each, rows of whole 16-deep products, or what the form int8
 * makes of them where that is more (few columns), and behind them
 * sums of segments that wait; before them what cuBLASLt may take, on 256 bytes. */
#include "kernels/cuda/plan/plan.h"

uint64_t cuda_gemm_workspace_bytes(const struct k_plan_dims *dims)
{
    uint64_t n_tokens = dims->n_tokens > dims->n_logits ? dims->n_tokens : dims->n_logits;
    uint64_t of_library = dims->not_invariant ? 256 + CUDA_CUBLASLT_WORKSPACE_BYTES : 0;
    uint64_t factors = cuda_gemm_factor_stride(dims->max_gemm_cols) * UINT64_C(2);
    uint64_t rounded = cuda_quant_rounded_bytes(dims->max_gemm_cols);
    return of_library + n_tokens * (rounded > factors ? rounded : factors) + CUDA_GEMM_WAITING_BYTES;
}
