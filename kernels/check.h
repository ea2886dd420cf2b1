/* Checks the arguments of operations, and defines the shape constants of those checks. For every backend. Owns nothing.
 * Any thread. */
#ifndef QUIRE_KERNELS_CHECK_H
#define QUIRE_KERNELS_CHECK_H

#include "kernels/args/attention.h"
#include "kernels/args/group.h"
#include "kernels/args/moe.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/group.h"
#include "kernels/kv.h"

/* Attention's shapes (docs/internals/numerics.md §10). They determine the bits of every answer. */
#define K_ATTN_TILE 64u
#define K_ATTN_SPLIT 512u
#define K_MAX_HEAD_DIM 256u

#define K_POOL_LEAST_LENGTH 1e-12f /* the divisor of a vector is at least this (docs/internals/numerics.md §18) */

#define K_MAX_VOCAB (1u << 22) /* the sum of more weights could overflow (docs/internals/numerics.md §13) */

/* Returns whether an operation supports weights, or a KV cache, in this format; for a GEMM, in any form. */
bool k_takes_format(enum k_operation operation, struct k_format format);

/* Returns QUIRE_INVALID for arguments that no backend can compute. The message starts with the operation. */
int k_check_rmsnorm(const struct k_rmsnorm_args *a, struct quire_error *err);
/* Checks a backend's group. Before join() the group has no ranks. */
int k_check_group(const char *operation, const struct k_group *group, struct quire_error *err);
int k_check_all_gather(const struct k_all_gather_args *a, const struct k_group *group, struct quire_error *err);
int k_check_kv_shape(const char *operation, const struct k_kv_shape *kv, struct quire_error *err);
int k_check_rotation(const struct k_rope_kv_args *a, struct quire_error *err); /* after k_check_kv_shape() */
int k_check_attention(const struct k_attention_args *a, struct quire_error *err);
int k_check_sample(const struct k_sample_plan_args *a, struct quire_error *err);
int k_check_route(const struct k_moe_route_args *a, struct quire_error *err);
int k_check_moe_gemm(const struct k_moe_gemm_args *a, struct quire_error *err);
int k_check_gate_up(uint32_t n_rows, struct quire_error *err); /* of gemm_gated()'s and moe_gemm_gated()'s weight */

#endif
