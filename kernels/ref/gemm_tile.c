/* The tile forms: what AMX's TDPBF16PS computes, for each pair of an activation's bf16 term and a
 * weight's (docs/numerics.md §6).
 *
 * A chain over k is serial, so 16 rows run side by side: their weights of a 32-deep tile are
 * widened and transposed once, then meet every token.
 */
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

#define TILE_DEPTH 32u
#define MAX_TERMS 2u

/* A bf16 as a factor of a product: widened, a denormal as zero. */
static inline float widen_factor(uint16_t b)
{
    uint32_t is_zero = (b & 0x7f80u) == 0;
    return k_f32_from_bits((uint32_t)(b & k_select_u32(is_zero, 0x8000u, 0xffffu)) << 16);
}

/* A denormal becomes a zero of its sign. */
static inline ref_f32x8 flush8(ref_f32x8 x)
{
    ref_u32x8 bits = (ref_u32x8)x;
    ref_u32x8 is_zero = (ref_u32x8)((ref_i32x8)(bits & 0x7f800000u) == 0);
    return (ref_f32x8)(bits & ~(is_zero & 0x7fffffffu));
}

static inline struct ref_lanes flush(struct ref_lanes x)
{
    return (struct ref_lanes){flush8(x.low), flush8(x.high)};
}

/* A sum that small is exact: only a denormal is tiny. */
static inline struct ref_lanes add_flushed(struct ref_lanes a, struct ref_lanes b)
{
    struct ref_lanes sum = {a.low + b.low, a.high + b.high};
    return flush(sum);
}

/* An fma may have been rounded up to 2^-126 from what is tiny: 24 bits without a least exponent would
 * leave it below. Seen in double, which holds the exact value wherever it is that near. */
static inline ref_f32x8 flush_fma8(ref_f32x8 r, ref_f32x8 a, ref_f32x8 b, ref_f32x8 c)
{
    ref_i32x8 is_least = (ref_i32x8)(((ref_u32x8)r & 0x7fffffffu) == 0x00800000u);
    int any = 0;
    for (int j = 0; j < 8; j++)
        any |= is_least[j];
    for (int j = 0; any && j < 8; j++)
        if (is_least[j] && __builtin_fabs((double)a[j] * (double)b[j] + (double)c[j]) < 0x1p-126 - 0x1p-151)
            r[j] = __builtin_copysignf(0.0f, r[j]);
    return flush8(r);
}

static inline struct ref_lanes fma_flushed(struct ref_lanes a, struct ref_lanes b, struct ref_lanes c)
{
    struct ref_lanes r = ref_fma(a, b, c);
    return (struct ref_lanes){flush_fma8(r.low, a.low, b.low, c.low), flush_fma8(r.high, a.high, b.high, c.high)};
}

/* The two bf16 terms of a number, as factors of products. */
static inline void split(float x, float *high, float *low)
{
    uint16_t term = k_bf16_from_f32(x);
    *high = widen_factor(term);
    *low = widen_factor(k_bf16_from_f32(x - k_f32_from_bf16(term)));
}

/* w[term][k][i] = the part's row first + i at column k of the tile; zeros outside the matrix. A
 * BF16 weight is its first term. */
static void load_tile(const struct host_part *part, uint32_t first, uint32_t n_rows, uint32_t column, uint32_t n_cols,
                      float w[MAX_TERMS][TILE_DEPTH][K_LANES])
{
    uint32_t depth = n_cols - column < TILE_DEPTH ? n_cols - column : TILE_DEPTH;
    if (n_rows < K_LANES || depth < TILE_DEPTH)
        memset(w, 0, MAX_TERMS * sizeof *w);
    for (uint32_t i = 0; i < n_rows; i++) {
        const unsigned char *row = part->data + (first + i) * part->row_stride_bytes;
        const uint16_t *weights = (const uint16_t *)(const void *)row + column;
        for (uint32_t k = 0; k < depth; k++) {
            if (part->format.kind == K_F16)
                split(k_f32_from_f16(weights[k]), &w[0][k][i], &w[1][k][i]);
            else
                w[0][k][i] = widen_factor(weights[k]);
        }
    }
}

/* The terms of a token's activations in a tile. */
static void split_activations(const float *x, uint32_t depth, float terms[MAX_TERMS][TILE_DEPTH])
{
    for (uint32_t k = 0; k < depth; k++)
        split(x[k], &terms[0][k], &terms[1][k]);
    for (uint32_t k = depth; k < TILE_DEPTH; k++)
        terms[0][k] = terms[1][k] = 0.0f;
}

/* c + (chain over even k + chain over odd k), for 16 rows. */
static struct ref_lanes add_tile(struct ref_lanes c, const float w[TILE_DEPTH][K_LANES], const float x[TILE_DEPTH])
{
    struct ref_lanes even = ref_zero(), odd = ref_zero();
    for (uint32_t k = 0; k < TILE_DEPTH; k += 2) {
        even = fma_flushed(ref_load_f32(w[k]), ref_splat(x[k]), even);
        odd = fma_flushed(ref_load_f32(w[k + 1]), ref_splat(x[k + 1]), odd);
    }
    return add_flushed(c, add_flushed(even, odd));
}

/* y holds c between the tiles of a row; the bias comes last. */
void ref_gemm_tile_rows(const struct k_gemm_args *a, enum k_gemm_form form, const struct host_part *part,
                        uint32_t row_begin, uint32_t row_end)
{
    uint32_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    uint32_t x_terms = form == K_FORM_TILE ? 2 : 1, w_terms = part->format.kind == K_F16 ? 2 : 1;
    float w[MAX_TERMS][TILE_DEPTH][K_LANES], x[MAX_TERMS][TILE_DEPTH];
    for (uint32_t first = row_begin; first < row_end; first += K_LANES) {
        uint32_t n = row_end - first < K_LANES ? row_end - first : K_LANES;
        for (uint32_t column = 0; column < n_cols; column += TILE_DEPTH) {
            uint32_t depth = n_cols - column < TILE_DEPTH ? n_cols - column : TILE_DEPTH;
            load_tile(part, first, n, column, n_cols, w);
            for (uint32_t t = 0; t < a->n_tokens; t++) {
                float *y = a->y_dev + (uint64_t)t * n_rows + part->first_row + first;
                float c[K_LANES] = {0};
                if (column > 0)
                    memcpy(c, y, n * sizeof *c);
                split_activations(a->x_dev + (uint64_t)t * n_cols + column, depth, x);
                struct ref_lanes sum = ref_load_f32(c);
                for (uint32_t i = 0; i < x_terms; i++)
                    for (uint32_t j = 0; j < w_terms; j++)
                        sum = add_tile(sum, (const float(*)[K_LANES])w[j], x[i]);
                ref_store_f32(c, sum);
                memcpy(y, c, n * sizeof *c);
            }
        }
        for (uint32_t t = 0; a->bias_dev && t < a->n_tokens; t++) {
            float *y = a->y_dev + (uint64_t)t * n_rows + part->first_row + first;
            const float *bias = a->bias_dev + part->first_row + first;
            for (uint32_t i = 0; i < n; i++)
                y[i] += bias[i];
        }
    }
}
