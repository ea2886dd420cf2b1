/* What operations refuse, and the shapes that they refuse by: for every backend, on host memory or not. */
#ifndef QUIRE_KERNELS_CHECK_H
#define QUIRE_KERNELS_CHECK_H

#include "kernels/kernels.h"

/* Attention's shapes (docs/numerics.md §10): part of every user's bits. */
#define K_ATTN_TILE 64u
#define K_ATTN_SPLIT 512u
#define K_MAX_HEAD_DIM 256u

#define K_POOL_LEAST_LENGTH 1e-12f /* by which a vector is divided (docs/numerics.md §18) */

#define K_MAX_VOCAB (1u << 22) /* more weights than that could overflow their sum (docs/numerics.md §13) */

/* Whether an operation takes weights, or a KV cache, that are stored so; of a GEMM, in some form. */
bool k_takes_format(enum k_operation operation, struct k_format format);

/* QUIRE_INVALID for arguments that no backend can compute, named by the operation. */
int k_check_rmsnorm(const struct k_rmsnorm_args *a, struct quire_error *err);
/* Of a backend's group, which has no ranks before it has joined one. */
int k_check_group(const char *operation, const struct k_group *group, struct quire_error *err);
int k_check_all_gather(const struct k_all_gather_args *a, const struct k_group *group, struct quire_error *err);
int k_check_kv_shape(const char *operation, const struct k_kv_shape *kv, struct quire_error *err);
int k_check_attention(const struct k_attention_args *a, struct quire_error *err);
int k_check_sample(const struct k_sample_plan_args *a, struct quire_error *err);
int k_check_gate_up(uint32_t n_rows, struct quire_error *err); /* of gemm_silu_mul()'s weight */

#endif
