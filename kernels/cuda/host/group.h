/* A backend that is one of several ranks: the memory of its peers, and the end of their group. */
#ifndef QUIRE_KERNELS_CUDA_GROUP_H
#define QUIRE_KERNELS_CUDA_GROUP_H

#include "kernels/cuda/host/state.h"

/* Entries of the table. */
int cuda_join(struct k_backend *b, const struct k_group *group, struct quire_error *err);
void cuda_leave(struct k_backend *b);

/* rmsnorm() of a sum over ranks; for_gemm as launches take it. */
int cuda_group_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err);

/* memory.c's, and whether what was waited for was computed with all ranks: else the group's error, or QUIRE_UNAVAILABLE with
 * the rank that did not come. */
int cuda_group_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);
int cuda_group_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);

#endif
