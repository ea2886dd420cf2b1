/* Checks that the declarations of kernels/cuda/host/cublaslt.h agree with NVIDIA's header. The compiler does the
 * check. */
#include "kernels/cuda/host/cublaslt.h"

#include <cublasLt.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
SAME(LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(LT_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH);
SAME(LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(LT_F32, CUDA_R_32F);
SAME(LT_F16, CUDA_R_16F);
SAME(LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(LT_TRANSPOSE, CUBLAS_OP_T);
SAME(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(LT_LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(LT_PREFERENCE_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREFERENCE_ALIGNMENT_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREFERENCE_ALIGNMENT_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREFERENCE_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(sizeof(struct lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct lt_heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct lt_heuristic, workspace_bytes), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct lt_heuristic, status), offsetof(cublasLtMatmulHeuristicResult_t, state));

/* Number, order and type of the functions' arguments: opaque objects are pointers, enums are ints. */
static inline int calls(cublasLtHandle_t h, cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t l,
                        cublasLtMatmulPreference_t f, const cublasLtMatmulAlgo_t *a, cublasLtMatmulHeuristicResult_t *r,
                        int *n, void *p, cudaStream_t s)
{
    size_t version = cublasLtGetVersion(), bytes = 1;
    const char *name = cublasLtGetStatusName(CUBLAS_STATUS_SUCCESS);
    return (int)version + name[0] + cublasLtCreate(&h) + cublasLtDestroy(h) +
           cublasLtMatmulDescCreate(&m, CUBLAS_COMPUTE_32F, CUDA_R_32F) + cublasLtMatmulDescDestroy(m) +
           cublasLtMatmulDescSetAttribute(m, CUBLASLT_MATMUL_DESC_TRANSA, p, bytes) +
           cublasLtMatrixLayoutCreate(&l, CUDA_R_16F, UINT64_C(1), UINT64_C(1), INT64_C(1)) +
           cublasLtMatrixLayoutDestroy(l) + cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_COLS, p, bytes) +
           cublasLtMatmulPreferenceCreate(&f) + cublasLtMatmulPreferenceDestroy(f) +
           cublasLtMatmulPreferenceSetAttribute(f, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p, bytes) +
           cublasLtMatmulAlgoGetHeuristic(h, m, l, l, l, l, f, 1, r, n) +
           cublasLtMatmul(h, m, p, p, l, p, l, p, p, l, p, l, a, p, bytes, s);
}

int main(void)
{
    (void)calls;
    return 0;
}
