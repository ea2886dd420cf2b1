/* kernels/cuda: the backend on NVIDIA GPUs. Private to this folder.
 *
 * The host side is in C. A file may call the files named before it: state.c errors, and whether a step is being
 * recorded; memory.c allocations, copies, staging, tickets; graph.c recorded steps; device.c selection and
 * description of the GPU; weight.c weights onto the device; cublaslt.c NVIDIA's GEMM; nccl.c NVIDIA's transport
 * between GPUs; gemm.c, attention.c, sample.c, elementwise.c check arguments and launch, and the first two have tables
 * of their kernels; cuda.c the backend's table, open and close. Kernels are in NAME.cu; each compiles on its own with
 * device.cuh. launch.h and gemm_launch.h declare the functions that they export to C.
 *
 * One thread, the engine's. All work goes to one stream. The first CUDA error is sticky: the backend is unusable,
 * and every later call returns that error. A shortage of memory is not sticky: it returns a status, and the backend
 * stays usable. */
#ifndef QUIRE_KERNELS_CUDA_STATE_H
#define QUIRE_KERNELS_CUDA_STATE_H

#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/math/codes.h"
#include "kernels/weight.h"

#include <cuda_runtime_api.h>

/* Layout of a part of a quantized weight on the device: rows of q, padded with zeros to a multiple of 32 columns,
 * and for each group of columns its scale and related values. */
enum cuda_quant_kind {
    CUDA_QUANT_INT8, /* q = n - zero */
    CUDA_QUANT_INT4, /* codes, two in a byte, the low half first: q = the code's number - zero */
    CUDA_QUANT_E4M3,
    CUDA_QUANT_E5M2,
    CUDA_QUANT_F32, /* a plain part of a weight that also has quantized ones: the numbers themselves, no groups */
    CUDA_QUANT_F16,
    CUDA_QUANT_BF16,
};
struct cuda_quant_group {
    float scale;
    float second; /* the group's minimum if the format has one, otherwise its zero point */
};
struct cuda_quant {
    enum cuda_quant_kind kind;
    bool has_least;
    bool has_zeros; /* CUDA_QUANT_INT8: a group has a zero point other than 0 */
    uint32_t first_row, n_rows; /* rows of the weight, of each expert; a part's rows of all experts follow each other */
    uint32_t group, n_groups; /* columns that share a scale, and groups per row */
    uint32_t x_group; /* columns of activations that share a scale in the form int8; 0: all */
    float x_scale; /* that scale if the file states it, otherwise 0; of experts: 0 */
    struct k_codes codes; /* of CUDA_QUANT_INT4 */
    uint64_t row_stride_bytes;
    const unsigned char *data_dev;
    const struct cuda_quant_group *groups_dev; /* [rows, n_groups]; NULL for a plain part */
    const uint32_t *permutation_dev; /* [n_experts, n_cols]; may be NULL */
    const float *x_scales_dev; /* [n_experts] the x_scale of each expert; NULL: none is stated */
};

enum cuda_tensor_map { CUDA_TENSOR_MAP_ROWS, CUDA_TENSOR_MAP_GATED, CUDA_TENSOR_MAPS };
#define CUDA_TENSOR_MAP_BYTES 128u

/* One matrix with its parts stacked, in device memory. Rows start 16-byte aligned and are padded with zeros. Experts'
 * matrices follow each other. */
struct k_weight {
    uint32_t n_rows, n_cols; /* of each expert */
    uint32_t n_experts; /* 1: an ordinary weight */
    struct k_format format; /* format of the parts */
    enum k_dtype stored; /* dtype at data_dev: equal, but F16 factors for BF16 in the mma form (numerics.md §17) */
    uint64_t row_stride_bytes; /* a multiple of 16 */
    void *data_dev;
    int8_t *exponents_dev; /* [n_experts, n_rows] for F16 factors of BF16: e of each row. NULL: every e is 0 */
    bool has_one_exponent; /* F16 with one e for all rows, for cuBLASLt */
    int exponent; /* that e */
    /* The matrix as TMA reads it (a CUtensorMap), as rows and as pairs of gate's and up's rows; made by hopper/, which
     * takes only weights that have the map. */
    bool has_tensor_map[CUDA_TENSOR_MAPS];
    unsigned char tensor_maps[CUDA_TENSOR_MAPS][CUDA_TENSOR_MAP_BYTES];
    uint32_t n_quant; /* > 0: quantized; data_dev holds these parts in place of the matrix */
    struct cuda_quant quant[K_WEIGHT_MAX_PARTS];
};

struct cuda_backend {
    struct k_backend base;
    int device;
    uint32_t n_sms, shared_bytes; /* multiprocessors; the most shared memory of a block */
    int compute_capability; /* 90 for sm_90 */
    cudaStream_t stream;
    bool is_recording; /* between graph_begin and graph_end */
    bool dead;
    struct quire_error death; /* the error that made the backend unusable */
    struct cuda_memory *memory; /* owned by memory.c */
    uint32_t *arrivals_dev; /* [CUDA_GEMM_ARRIVALS] counters of gemm_large.cu, 0 between launches; owned by cuda.c */
    struct cuda_gemm_hopper *hopper; /* owned by hopper/; NULL: it computes no GEMM */
    struct cuda_group *group; /* owned by group.c; NULL: not a rank */
    struct cublaslt *lt; /* owned by cublaslt.c; NULL: our kernels compute everything */
    char description[560], placement[160];
    char not_loaded[128]; /* a part of the description; empty if every kernel is loaded */
};

static inline struct cuda_backend *cuda_of(struct k_backend *b)
{
    return (struct cuda_backend *)b;
}

/* Returns whether rows of n_cols that only GEMMs read are stored at out_dev as f16 factors
 * (kernels/cuda/factors.cuh). Writer and reader must pass the same address and width. */
static inline bool cuda_leaves_factors(const struct k_backend *b, bool for_gemm, const float *out_dev, uint32_t n_cols)
{
    return for_gemm && b->form == K_FORM_MMA && n_cols % 16 == 0 && (uintptr_t)out_dev % 16 == 0;
}

/* Returns QUIRE_OK, or makes the backend unusable: `what` names the operation. Every CUDA call goes through this
 * function. */
int cuda_check(struct k_backend *b, cudaError_t error, const char *what, struct quire_error *err);
/* Makes the backend unusable after an error that does not come from CUDA. */
int cuda_die(struct k_backend *b, const char *what, const char *error, struct quire_error *err);
/* Returns QUIRE_OK, or the error that made the backend unusable. Every operation begins with this call: it also
 * selects the backend's GPU for the calling thread, because the thread that opened the backend may be another one
 * than the engine's. */
int cuda_alive(struct k_backend *b, struct quire_error *err);
/* cuda_alive() for operations that cannot be recorded: between graph_begin and graph_end it drops the recording and
 * returns an error. */
int cuda_eager(struct k_backend *b, const char *operation, struct quire_error *err);
/* Sets the GPU that this thread's CUDA calls use from now on; -1: unknown. */
void cuda_set_thread_device(int device);
/* Ends and drops the recording between graph_begin and graph_end, if there is one. */
void cuda_drop_recording(struct k_backend *b);

#endif
