/* kernels/ref: docs/internals/numerics.md in plain C, to be read next to it. A GEMM computes one row with one token at
 * a time. The cpu backend uses these functions where it has no faster ones, so norms, RoPE and sampling are written for
 * vectorization.
 *
 * The backend's internal header. Every operation checks the shapes of its arguments, divides its work over the pool so
 * that no sum crosses a division, and allocates nothing.
 */
#ifndef QUIRE_KERNELS_REF_H
#define QUIRE_KERNELS_REF_H

#include "kernels/args/gemm.h"
#include "kernels/host/host.h"

#define REF_ATTN_QUERIES 8u /* queries that share a widened tile */

struct ref_attn_query { /* a query's state in one split, or over the merged splits */
    float m, l;
    bool used; /* it has read at least one position */
    float o[K_MAX_HEAD_DIM];
};

struct ref_attn_scratch { /* scratch of one thread */
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

/* One function per operation: int ref_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error
 * *err). cpu uses them too where it has no faster one. */
#define REF_OPERATION(NAME, name, text) \
    int ref_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err);
K_OPERATIONS(REF_OPERATION)
#undef REF_OPERATION
extern const struct k_backend_ops ref_ops;

/* Finishes gemm_gated() after the GEMM has written y. */
void ref_gate(struct k_backend *b, const struct k_gemm_gated_args *a);

/* Computes the n outputs of one row of gate and up. */
void ref_gate_row(struct k_gate how, const float *gate_up, float *out, uint32_t n);

/* Computes the rows of one part of quantized weights. */
void ref_gemm_quant(struct k_backend *b, const struct k_gemm_args *a, const struct host_part *part);

/* Returns the lane sum of x_k · x_k. A partial last group is padded with zeros. */
float ref_sum_of_squares(const float *x, uint32_t n);

/* Computes one RMSNorm row: out = x * rsqrt(lane sum(x²) / n + eps) * weight; out may be x. */
void ref_rmsnorm_row(const float *x, const float *weight, float *out, uint32_t n, float eps);

/* Returns the product of a row of BF16 or F16 weights with x_terms bf16 terms of an activation, in a tile form
 * (docs/internals/numerics.md §6). */
float ref_dot_tile(const uint16_t *row, enum k_dtype dtype, const float *x, uint32_t n_cols, uint32_t x_terms);

#endif
