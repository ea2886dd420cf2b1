/* cuBLASLt, for --invariance off: NVIDIA's library computes large GEMMs instead of gemm_large.cu. Private to this
 * folder. One thread, the engine's.
 *
 * The library is opened when it is needed and never linked: it has 552 MB, most machines lack it, and no other option
 * needs it. For the same reason its header is not used (it comes with the library, a download of 444 MB); the few
 * functions and constants are declared here. They belong to the library's ABI and are equal in releases 12 and 13.
 * cublaslt_header_test compares them with the real header if one is installed.
 */
#ifndef QUIRE_KERNELS_CUDA_CUBLASLT_H
#define QUIRE_KERNELS_CUDA_CUBLASLT_H

#include "kernels/args/gemm.h"
#include "kernels/cuda/host/state.h"

/* Opens the library and makes the current GPU's handle. Returns QUIRE_INVALID if no release of the library can be
 * opened; the error names the missing part. cublaslt_version() returns "cuBLASLt 13.0.2", which lives as long as the
 * object. */
struct cublaslt;
int cublaslt_open(struct cublaslt **out, struct quire_error *err);
void cublaslt_close(struct cublaslt *lt); /* NULL is allowed */
const char *cublaslt_version(const struct cublaslt *lt);

/* Computes y = W x (+ bias) on the backend's stream. Sets *done to false, so that the backend's own kernel computes the
 * GEMM, in three cases: W is neither F16 nor f16 factors; the library has no kernel for the shape or the addresses; or
 * a shape appears first between graph_begin and graph_end, because the library may load code on its first run. Memory:
 * cuda_gemm_workspace_bytes() with not_invariant. */
int cublaslt_gemm(struct k_backend *b, const struct k_gemm_args *a, bool *done, struct quire_error *err);

/* ---- the library's ABI ---- */

enum {
    LT_SUCCESS = 0,
    LT_INVALID_VALUE = 7,
    LT_ARCH_MISMATCH = 8,
    LT_NOT_SUPPORTED = 15,

    LT_F32 = 0, /* cudaDataType */
    LT_F16 = 2,
    LT_COMPUTE_F32 = 68,
    LT_TRANSPOSE = 1,

    LT_DESC_TRANSA = 3, /* int32_t */
    LT_DESC_EPILOGUE = 7, /* uint32_t */
    LT_DESC_BIAS_POINTER = 8, /* void *: one float per row of D */
    LT_EPILOGUE_BIAS = 4,
    LT_LAYOUT_COLS = 3, /* uint64_t */
    LT_PREFERENCE_MAX_WORKSPACE = 1, /* uint64_t */
    LT_PREFERENCE_ALIGNMENT_A = 5, /* uint32_t; the next values are those of B, C and D */
};

struct lt_algorithm {
    uint64_t data[8];
};
struct lt_heuristic {
    struct lt_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

#endif
