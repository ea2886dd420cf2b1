/* The memory of a GEMM. First cuBLASLt's workspace, on 256 bytes. Then the activations' factors, 2 bytes each, in rows
 * of whole 16-deep products, or the int8 form's data if that is larger (few columns). Last the sums of waiting
 * segments. */
#include "kernels/cuda/plan/plan.h"

uint64_t cuda_gemm_workspace_bytes(const struct k_plan_dims *dims)
{
    uint64_t n_tokens = dims->n_tokens > dims->n_logits ? dims->n_tokens : dims->n_logits;
    uint64_t of_library = dims->not_invariant ? 256 + CUDA_CUBLASLT_WORKSPACE_BYTES : 0;
    uint64_t factors = cuda_gemm_factor_stride(dims->max_gemm_cols) * UINT64_C(2);
    uint64_t rounded = cuda_quant_rounded_bytes(dims->max_gemm_cols);
    return of_library + n_tokens * (rounded > factors ? rounded : factors) + CUDA_GEMM_WAITING_BYTES;
}
