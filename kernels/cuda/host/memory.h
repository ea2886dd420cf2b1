/* The backend's memory: allocations, copies, tickets. */
#ifndef QUIRE_KERNELS_CUDA_MEMORY_H
#define QUIRE_KERNELS_CUDA_MEMORY_H

#include "kernels/cuda/host/state.h"

int cuda_memory_open(struct cuda_backend *c, struct quire_error *err);
void cuda_memory_close(struct cuda_backend *c); /* also of what was opened in part */

/* Pinned memory that uploads of pageable memory pass through: weights, while a model is opened. What a step uploads lies in
 * pinned memory of its own. A piece is filled while the one before it is on its way. */
#define CUDA_STAGING_BYTES (16u << 20)
/* Host memory to the device in stream order; src is free when the call returns. */
int cuda_upload(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);

/* Pinned memory for the next bytes that go to the device: *bytes of them, at most the wanted ones. The caller fills it, and
 * queues its copy on the stream before it asks for more. */
int cuda_stage(struct k_backend *b, uint64_t wanted, void **out, uint64_t *bytes, struct quire_error *err);

/* Entries of the table. */
int cuda_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err);
int cuda_alloc_host(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
void cuda_free(struct k_backend *b, void *p);
int cuda_copy_in(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
int cuda_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
int cuda_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
int cuda_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);

#endif
