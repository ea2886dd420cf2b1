/* A backend that is a rank of a group: access to its peers' memory, and the end of the group. Private to this folder.
 * One thread, the engine's. */
#ifndef QUIRE_KERNELS_CUDA_GROUP_H
#define QUIRE_KERNELS_CUDA_GROUP_H

#include "kernels/args/norm.h"
#include "kernels/cuda/host/state.h"
#include "kernels/group.h"

/* Members of the backend table. */
int cuda_join(struct k_backend *b, const struct k_group *group, struct quire_error *err);
void cuda_leave(struct k_backend *b);

/* rmsnorm() of a sum over ranks; for_gemm as in launches. */
int cuda_group_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err);

/* The versions of memory.c's functions that also check whether the awaited work was computed with all ranks. If not,
 * they return the group's error, or QUIRE_UNAVAILABLE with the rank that did not arrive. */
int cuda_group_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);
int cuda_group_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);

#endif
