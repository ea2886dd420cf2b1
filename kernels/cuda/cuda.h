/* kernels/cuda: the backend on NVIDIA GPUs. Private to this folder.
 *
 * Host side in C: cuda.c the table, open and close; device.c which GPU and what it is; memory.c allocations, copies, staging,
 * tickets; weight.c weights onto the device; graph.c recorded steps; gemm.c, attention.c, attention_plan.c,
 * sample.c, elementwise.c check arguments and launch. Kernels in NAME.cu, each compiling on its own over device.cuh; launch.h
 * declares what they export to C.
 *
 * One thread, the engine's. Everything is queued on one stream; block copies have one of their own. The first CUDA
 * error is sticky: the backend is dead and every later call says why. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_H
#define QUIRE_KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

/* One matrix, its parts stacked, in device memory; rows begin 16-byte aligned and end in zeros. */
struct k_weight {
    uint32_t n_rows, n_cols;
    enum k_dtype dtype;
    uint64_t row_stride_bytes;   /* of 16 */
    void *data_dev;
    int8_t *exponents_dev;       /* [n_rows] BF16 only: e of docs/numerics.md §17 */
};

struct cuda_backend {
    struct k_backend base;
    int device;
    uint32_t n_sms;
    int compute_capability;      /* 90 for sm_90 */
    cudaStream_t stream, copy_stream;
    bool dead;
    struct quire_error death;    /* what killed it */
    struct cuda_memory *memory;  /* memory.c's */
    char description[160], placement[160];
};

static inline struct cuda_backend *cuda_of(struct k_backend *b)
{
    return (struct cuda_backend *)b;
}

/* QUIRE_OK, or the backend dies of it: `what` names the operation. Every CUDA call goes through here. */
int cuda_check(struct k_backend *b, cudaError_t error, const char *what, struct quire_error *err);
/* QUIRE_OK, or what the backend died of. Every operation begins with it. */
int cuda_alive(struct k_backend *b, struct quire_error *err);

/* Host memory to the device in stream order; src is free when the call returns. Never synchronises while
 * CUDA_STAGING_BYTES hold what two steps upload. */
int cuda_upload(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
/* Device memory to dst, which is written by the wait() for a later fence. */
int cuda_download(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);

/* ---- operations, one file each ---- */
int cuda_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err);
int cuda_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err);
int cuda_rope_angles(struct k_backend *b, const struct k_rope_angles_args *a, struct quire_error *err);
int cuda_rope_kv(struct k_backend *b, const struct k_rope_kv_args *a, struct quire_error *err);
int cuda_silu_mul(struct k_backend *b, const struct k_silu_mul_args *a, struct quire_error *err);
int cuda_gather(struct k_backend *b, const struct k_gather_args *a, struct quire_error *err);
int cuda_kv_copy(struct k_backend *b, const struct k_kv_copy_args *a, struct quire_error *err);
int cuda_place_tokens(struct k_backend *b, const struct k_place_tokens_args *a, struct quire_error *err);
int cuda_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err);
int cuda_attention_plan(struct k_backend *b, const struct k_attention_plan_args *a, struct quire_error *err);
int cuda_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err);
int cuda_sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err);

#endif
