/* kernels/cuda: the backend on NVIDIA GPUs. Private to this folder.
 *
 * Host side in C, who is further down calls who is further up: state.c errors, and whether a step is being recorded; memory.c
 * allocations, copies, staging, tickets; graph.c recorded steps; device.c which GPU and what it is; weight.c weights onto the
 * device; cublaslt.c NVIDIA's GEMM; nccl.c NVIDIA's carrier between GPUs; gemm.c, attention.c, sample.c, elementwise.c check arguments and launch; cuda.c the
 * table, open and close. Kernels in NAME.cu, each compiling on its own over device.cuh; launch.h declares what they export
 * to C.
 *
 * One thread, the engine's. Everything is queued on one stream. The first CUDA error is sticky: the backend is dead and
 * every later call says why. A shortage of memory is none: it is a status, and the backend lives on. */
#ifndef QUIRE_KERNELS_CUDA_STATE_H
#define QUIRE_KERNELS_CUDA_STATE_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

/* How a part of a quantized weight lies on the device: rows of q that end in zeros up to 32 columns, and of each group of columns its
 * scale and what belongs to it. */
enum cuda_quant_kind {
    CUDA_QUANT_INT8, /* q = n - zero */
    CUDA_QUANT_INT4, /* two in a byte, the low half first: q = n - zero */
    CUDA_QUANT_E4M3,
    CUDA_QUANT_E5M2,
    CUDA_QUANT_F32, /* a plain part beside quantized ones: the numbers themselves, no groups */
    CUDA_QUANT_F16,
    CUDA_QUANT_BF16,
};
struct cuda_quant_group {
    float scale;
    float second; /* the group's least where the format has one, else its zero */
};
struct cuda_quant {
    enum cuda_quant_kind kind;
    bool has_least;
    bool has_zeros; /* of CUDA_QUANT_INT8: groups have zeros that are not 0 */
    uint32_t first_row, n_rows; /* of the weight */
    uint32_t group, n_groups; /* columns with one scale, and how many such a row has */
    uint32_t x_group; /* columns of activations with one scale in the form int8, or 0: all */
    float x_scale; /* that scale where the file states it, else 0 */
    uint64_t row_stride_bytes;
    const unsigned char *data_dev;
    const struct cuda_quant_group *groups_dev; /* [n_rows, n_groups]; NULL of a plain part */
    const uint32_t *permutation_dev; /* or NULL */
};

/* One matrix, its parts stacked, in device memory; rows begin 16-byte aligned and end in zeros. */
struct k_weight {
    uint32_t n_rows, n_cols;
    struct k_format format; /* of the parts */
    enum k_dtype
        stored; /* what lies at data_dev: the same, but F16 factors of BF16 in the mma form (numerics.md §17) */
    uint64_t row_stride_bytes; /* of 16 */
    void *data_dev;
    int8_t *exponents_dev; /* [n_rows] of such factors: e of each row. NULL: all are 0 */
    bool has_one_exponent; /* F16 of one e for all rows, as cuBLASLt takes it */
    int exponent; /* that e */
    uint32_t n_quant; /* > 0: it is quantized, and has these parts in data_dev in place of all that is above */
    struct cuda_quant quant[K_WEIGHT_MAX_PARTS];
};

struct cuda_backend {
    struct k_backend base;
    struct k_backend_ops ops; /* the table, with this GPU's description */
    int device;
    uint32_t n_sms, shared_bytes; /* multiprocessors; the most shared memory of a block */
    int compute_capability; /* 90 for sm_90 */
    cudaStream_t stream;
    bool is_recording; /* between graph_begin and graph_end */
    bool dead;
    struct quire_error death; /* what killed it */
    struct cuda_memory *memory; /* memory.c's */
    uint32_t *arrivals_dev; /* [CUDA_GEMM_ARRIVALS] counters of gemm_large.cu, 0 between launches; cuda.c's */
    struct cuda_gemm_hopper *hopper; /* the folder hopper's; NULL: it takes no GEMM */
    struct cuda_group *group; /* group.c's; NULL: it is nobody's rank */
    struct cublaslt *lt; /* cublaslt.c's; NULL: our kernels compute everything */
    char description[560], placement[160];
    char not_loaded[128]; /* a part of the description; empty where every kernel is loaded */
};

static inline struct cuda_backend *cuda_of(struct k_backend *b)
{
    return (struct cuda_backend *)b;
}

/* Whether what is written for GEMMs alone, rows of n_cols, is left at out_dev as f16 factors (kernels/cuda/factors.cuh). Writer
 * and reader ask for the same address and width. */
static inline bool cuda_leaves_factors(const struct k_backend *b, bool for_gemm, const float *out_dev, uint32_t n_cols)
{
    return for_gemm && b->form == K_FORM_MMA && n_cols % 16 == 0 && (uintptr_t)out_dev % 16 == 0;
}

/* QUIRE_OK, or the backend dies of it: `what` names the operation. Every CUDA call goes through here. */
int cuda_check(struct k_backend *b, cudaError_t error, const char *what, struct quire_error *err);
/* The backend dies of an error that is not CUDA's. */
int cuda_die(struct k_backend *b, const char *what, const char *error, struct quire_error *err);
/* QUIRE_OK, or what the backend died of. Every operation begins with it: it also makes the backend's GPU the calling
 * thread's, since the thread that opened need not be the engine's. */
int cuda_alive(struct k_backend *b, struct quire_error *err);
/* cuda_alive(), for what may not be recorded: between graph_begin and graph_end it drops the recording and refuses. */
int cuda_eager(struct k_backend *b, const char *operation, struct quire_error *err);
/* The GPU that CUDA's calls of this thread mean from here on; -1: nobody knows. */
void cuda_set_thread_device(int device);
/* Ends the recording between graph_begin and graph_end, if there is one, and forgets it. */
void cuda_drop_recording(struct k_backend *b);

#endif
