/* cuBLASLt, for --invariance off: large GEMMs by NVIDIA's library in place of gemm_large.cu. Private to this folder.
 *
 * The library is opened when it is asked for and never linked: it is 552 MB, most machines lack it and no other option needs
 * it. For the same reason its header is not used (it comes with the library, a download of 444 MB): the few calls and
 * numbers are declared here. They are part of the library's ABI, equal in releases 12 and 13; cublaslt_header_test holds them
 * against the real header where one is installed. */
#ifndef QUIRE_KERNELS_CUDA_CUBLASLT_H
#define QUIRE_KERNELS_CUDA_CUBLASLT_H

#include "kernels/cuda/host/state.h"

/* QUIRE_INVALID where no release of the library can be opened: the error names what is missing. *version (static storage of
 * the object): "cuBLASLt 13.0.2". Makes the current GPU's handle. */
struct cublaslt;
int cublaslt_open(struct cublaslt **out, struct quire_error *err);
void cublaslt_close(struct cublaslt *lt); /* NULL is fine */
const char *cublaslt_version(const struct cublaslt *lt);

/* y = W x (+ bias) on the backend's stream. *done: false where W is not of F16 or of factors, where the library has nothing for
 * the shape or the addresses, and where a shape is met first between graph_begin and graph_end, since the library may load code when
 * it first runs: the backend's own kernel then takes it. Memory: cuda_gemm_workspace_bytes() with not_invariant. */
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
    LT_DESC_BIAS_POINTER = 8, /* void *: a float for each row of D */
    LT_EPILOGUE_BIAS = 4,
    LT_LAYOUT_COLS = 3, /* uint64_t */
    LT_PREFERENCE_MAX_WORKSPACE = 1, /* uint64_t */
    LT_PREFERENCE_ALIGNMENT_A = 5, /* uint32_t; then of B, C and D */
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
