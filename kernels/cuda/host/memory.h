/* The backend's memory: allocations, copies and tickets. Private to this folder. One thread, the engine's. */
#ifndef QUIRE_KERNELS_CUDA_MEMORY_H
#define QUIRE_KERNELS_CUDA_MEMORY_H

#include "kernels/cuda/host/state.h"

int cuda_memory_open(struct cuda_backend *c, struct quire_error *err);
void cuda_memory_close(struct cuda_backend *c); /* also after a partial open */

/* Size of the pinned memory for uploads of pageable memory: weights, while a model is opened. A step's uploads have
 * their own pinned memory. One piece is filled while the previous one is copied. */
#define CUDA_STAGING_BYTES (16u << 20)
/* Copies host memory to the device in stream order. src may be reused when the call returns. */
int cuda_upload(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);

/* Returns pinned memory for the next bytes that go to the device: *bytes, at most `wanted`. The caller fills it and
 * queues its copy on the stream before the next call. */
int cuda_stage(struct k_backend *b, uint64_t wanted, void **out, uint64_t *bytes, struct quire_error *err);

/* Members of the backend table. */
int cuda_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err);
int cuda_alloc_host(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
void cuda_free(struct k_backend *b, void *p);
int cuda_copy_in(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
int cuda_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
int cuda_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
int cuda_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);

#endif
