/* kernels/cuda: the backend on NVIDIA GPUs. Private to this folder.
 *
 * Host side in C: cuda.c the table, open and close; device.c which GPU and what it is; memory.c allocations, copies, staging,
 * tickets; weight.c weights onto the device; graph.c recorded steps; cublaslt.c NVIDIA's GEMM; gemm.c, attention.c, attention_plan.c,
 * sample.c, elementwise.c check arguments and launch. Kernels in NAME.cu, each compiling on its own over device.cuh; launch.h
 * declares what they export to C.
 *
 * One thread, the engine's. Everything is queued on one stream. The first CUDA error is sticky: the backend is dead and
 * every later call says why. A shortage of memory is none: it is a status, and the backend lives on. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_H
#define QUIRE_KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

/* One matrix, its parts stacked, in device memory; rows begin 16-byte aligned and end in zeros. */
struct k_weight {
    uint32_t n_rows, n_cols;
    struct k_format format;
    uint64_t row_stride_bytes;   /* of 16 */
    void *data_dev;
    int8_t *exponents_dev;       /* [n_rows] BF16 only: e of docs/numerics.md §17 */
    bool is_factors;             /* BF16 that lies there as F16 factors, of one e for all rows: with cuBLASLt */
    int exponent;                /* that e; else 0 */
};

/* What the numbers at data_dev are. */
static inline enum k_dtype cuda_weight_stored(const struct k_weight *w)
{
    return w->is_factors ? K_F16 : w->format.kind;
}

struct cuda_backend {
    struct k_backend base;
    struct k_backend_ops ops;    /* the table, with this GPU's description */
    int device;
    uint32_t n_sms;
    int compute_capability;      /* 90 for sm_90 */
    cudaStream_t stream;
    bool is_recording;           /* between graph_begin and graph_end */
    bool dead;
    struct quire_error death;    /* what killed it */
    struct cuda_memory *memory;  /* memory.c's */
    struct cublaslt *lt;         /* cublaslt.c's; NULL: our kernels compute everything */
    void *plan_scratch;          /* attention.c's, on the host: a plan before it is uploaded */
    uint64_t plan_scratch_bytes; /* of the largest step so far */
    char description[400], placement[160];
};

static inline struct cuda_backend *cuda_of(struct k_backend *b)
{
    return (struct cuda_backend *)b;
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

/* Pinned memory that uploads pass through. The most that a step of 256 requests uploads is 13.3 MB: for each a mask of
 * 152,064 tokens (4.9 MB in all) and penalty counts of 4,096 ids (8.4 MB). Two such steps fit, so that neither waits. */
#define CUDA_STAGING_BYTES (32u << 20)
/* Host memory to the device in stream order; src is free when the call returns. Never synchronises while
 * CUDA_STAGING_BYTES hold what two steps upload. */
int cuda_upload(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
/* Device memory to dst, which is written by the wait() for a later fence. */
int cuda_download(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);

/* Pinned memory for the next bytes that go to the device: *bytes of them, at most the wanted ones. The caller fills it, and
 * queues its copy on the stream before it asks for more. */
int cuda_stage(struct k_backend *b, uint64_t wanted, void **out, uint64_t *bytes, struct quire_error *err);

/* ---- entries of the table that are no arithmetic ---- */
int cuda_memory_open(struct cuda_backend *c, struct quire_error *err);
void cuda_memory_close(struct cuda_backend *c); /* also of what was opened in part */
int cuda_memory(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err);
int cuda_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err);
int cuda_alloc_host(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
void cuda_free(struct k_backend *b, void *p);
int cuda_copy_in(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
int cuda_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
int cuda_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
int cuda_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);
int cuda_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight **out,
                       struct quire_error *err);
void cuda_weight_destroy(struct k_backend *b, struct k_weight *w);
bool cuda_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);
int cuda_graph_begin(struct k_backend *b, struct quire_error *err);
int cuda_graph_end(struct k_backend *b, struct k_graph **out, struct quire_error *err);
int cuda_graph_launch(struct k_backend *b, struct k_graph *graph, struct quire_error *err);
void cuda_graph_destroy(struct k_backend *b, struct k_graph *graph);
void cuda_graph_drop(struct k_backend *b); /* what is being recorded, if anything */

/* Makes the GPU that `device` ("cuda", "cuda:N") names the thread's, and fills in what it is. err says the reason alone,
 * for a line that begins with the device. */
int cuda_device_open(struct cuda_backend *c, const char *device, struct quire_error *err);

/* ---- operations, each of the list: int cuda_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err) ---- */
#define CUDA_OPERATION(NAME, name, text) \
    int cuda_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err);
K_OPERATIONS(CUDA_OPERATION)
#undef CUDA_OPERATION

#endif
