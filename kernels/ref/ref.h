/* kernels/ref: docs/numerics.md in plain C, blocked just enough to be used.
 *
 * The backend's own header: what its files share. Every operation checks its arguments' shapes,
 * splits its work over the pool so that no sum crosses a split, and allocates nothing.
 */
#ifndef QUIRE_KERNELS_REF_H
#define QUIRE_KERNELS_REF_H

#include "kernels/kernels.h"
#include "kernels/pool.h"

/* Attention's shapes (docs/numerics.md §10); the first two are part of every user's bits. */
#define REF_ATTN_TILE 64u
#define REF_ATTN_SPLIT 512u
#define REF_ATTN_QUERIES 8u /* queries that share a widened tile */
#define REF_MAX_HEAD_DIM 256u

/* Work below this many multiply-adds is done by the calling thread: waking others costs more. */
#define REF_SMALL_WORK 32768u

struct ref_attn_query { /* a query's state in a split, or of the splits merged so far */
    float m, l;
    bool used; /* it has read a position */
    float o[REF_MAX_HEAD_DIM];
};

struct ref_attn_scratch { /* one thread's */
    float k[REF_ATTN_TILE * REF_MAX_HEAD_DIM];
    float v[REF_ATTN_TILE * REF_MAX_HEAD_DIM];
    struct ref_attn_query split[REF_ATTN_QUERIES];
    struct ref_attn_query merged[REF_ATTN_QUERIES];
};

struct ref_backend {
    struct k_backend base;
    struct k_pool *pool;
    enum k_gemm_form form;
    uint64_t last_ticket;
    struct ref_attn_scratch *attn_scratch; /* [threads of the pool] */
};

struct ref_part { /* rows [first_row, first_row + n_rows) of the weight */
    const unsigned char *data;
    enum k_dtype dtype;
    uint32_t first_row, n_rows;
    uint64_t row_stride_bytes;
};

struct k_weight {
    uint32_t n_rows, n_cols, n_parts;
    struct ref_part parts[K_WEIGHT_MAX_PARTS];
};

/* Runs fn on all threads, or as thread 0 of 1 where the work is small. */
void ref_run(struct ref_backend *r, uint64_t work, k_pool_fn fn, void *context);

/* x as a ref_backend. */
static inline struct ref_backend *ref_of(struct k_backend *b)
{
    return (struct ref_backend *)b;
}

int ref_open(const struct k_backend_options *options, struct k_backend **out,
             struct quire_error *err);

int ref_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts,
                      struct k_weight **out, struct quire_error *err);
void ref_weight_destroy(struct k_backend *b, struct k_weight *w);
bool ref_supports_form(struct k_backend *b, enum k_gemm_form form, enum k_dtype weights);

int ref_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err);
int ref_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err);
int ref_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err);
int ref_rope_angles(struct k_backend *b, const struct k_rope_angles_args *a,
                    struct quire_error *err);
int ref_rope_kv(struct k_backend *b, const struct k_rope_kv_args *a, struct quire_error *err);
int ref_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err);
int ref_silu_mul(struct k_backend *b, const struct k_silu_mul_args *a, struct quire_error *err);
int ref_gather(struct k_backend *b, const struct k_gather_args *a, struct quire_error *err);
int ref_sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err);

/* One RMSNorm row: out = x * rsqrt(lane sum(x²) / n + eps) * weight; out may be x. */
void ref_rmsnorm_row(const float *x, const float *weight, float *out, uint32_t n, float eps);

/* The tile form for rows [row_begin, row_end) of a BF16 part (docs/numerics.md §6). */
void ref_gemm_tile_rows(const struct k_gemm_args *a, const struct ref_part *part,
                        uint32_t row_begin, uint32_t row_end);

#endif
