/* kernels/ref: docs/numerics.md in plain C, to be read beside it. A GEMM takes a row and a token at a time; where cpu has
 * nothing of its own it uses what is here, so that norms, RoPE and sampling are written to be vectorised.
 *
 * The backend's own header: what its files share. Every operation checks its arguments' shapes,
 * splits its work over the pool so that no sum crosses a split, and allocates nothing.
 */
#ifndef QUIRE_KERNELS_REF_H
#define QUIRE_KERNELS_REF_H

#include "kernels/host/host.h"

#define REF_ATTN_QUERIES 8u /* queries that share a widened tile */

struct ref_attn_query { /* a query's state in a split, or of the splits merged so far */
    float m, l;
    bool used; /* it has read a position */
    float o[K_MAX_HEAD_DIM];
};

struct ref_attn_scratch { /* one thread's */
    float k[K_ATTN_TILE * K_MAX_HEAD_DIM];
    float v[K_ATTN_TILE * K_MAX_HEAD_DIM];
    struct ref_attn_query split[REF_ATTN_QUERIES];
    struct ref_attn_query merged[REF_ATTN_QUERIES];
};

struct ref_backend {
    struct host_backend host;
    struct ref_attn_scratch *attn_scratch; /* [threads of the pool] */
};

int ref_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err);

/* Each operation of the list: int ref_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err).
 * The table of them is cpu's too, where it has nothing faster. */
#define REF_OPERATION(NAME, name, text) \
    int ref_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err);
K_OPERATIONS(REF_OPERATION)
#undef REF_OPERATION
extern const struct k_backend_ops ref_ops;

/* What is left of gemm_silu_mul() once y has the GEMM's. */
void ref_silu_mul(struct k_backend *b, const struct k_gemm_silu_mul_args *a);

/* A GEMM's rows of one part of quantized weights. */
void ref_gemm_quant(struct k_backend *b, const struct k_gemm_args *a, const struct host_part *part);

/* The lane sum of x_k · x_k; a last group that is not full is filled with zeros. */
float ref_sum_of_squares(const float *x, uint32_t n);

/* One RMSNorm row: out = x * rsqrt(lane sum(x²) / n + eps) * weight; out may be x. */
void ref_rmsnorm_row(const float *x, const float *weight, float *out, uint32_t n, float eps);

/* A row of BF16 or F16 weights against so many bf16 terms of an activation, in a tile form (docs/numerics.md §6). */
float ref_dot_tile(const uint16_t *row, enum k_dtype dtype, const float *x, uint32_t n_cols, uint32_t x_terms);

#endif
