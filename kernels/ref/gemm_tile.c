/* The tile forms: the result of AMX's TDPBF16PS, for each pair of an activation's bf16 term and a weight's term
 * (docs/internals/numerics.md §6). Computes one row with one token at a time. The optimized versions are in
 * kernels/cpu. */
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"
#include "kernels/ref/ref.h"

#include <string.h>

#define TILE_DEPTH 32u
#define MAX_TERMS 2u

/* Widens a bf16 factor of a product. A denormal becomes a zero with its sign. */
static inline float widen_factor(uint16_t b)
{
    return k_f32_from_bf16((uint16_t)(b & k_select_u32((b & 0x7f80u) == 0, 0x8000u, 0xffffu)));
}

/* Splits a number into its two bf16 terms, widened as factors of products. */
static inline void split(float x, float *high, float *low)
{
    uint16_t term = k_bf16_from_f32(x);
    *high = widen_factor(term);
    *low = widen_factor(k_bf16_from_f32(x - k_f32_from_bf16(term)));
}

/* A denormal becomes a zero with its sign. */
static float flush(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

/* A sum that small is exact, so only a denormal result is tiny. */
static float add_flushed(float a, float b)
{
    return flush(a + b);
}

/* An fma result of 2^-126 may have been rounded up from a tiny value: 24 bits with unlimited exponent would leave it
 * below. The check uses double, which holds the exact value near this limit. */
static float fma_flushed(float a, float b, float c)
{
    float r = __builtin_fmaf(a, b, c);
    if (__builtin_fabsf(r) != 0x1p-126f)
        return flush(r);
    bool is_tiny = __builtin_fabs((double)a * (double)b + (double)c) < 0x1p-126 - 0x1p-151;
    return is_tiny ? __builtin_copysignf(0.0f, r) : r;
}

/* Splits a tile's numbers into terms and pads with zeros after the last column. A BF16 weight is its own first term. */
static void split_weights(const uint16_t *row, enum k_dtype dtype, uint32_t depth, float terms[MAX_TERMS][TILE_DEPTH])
{
    memset(terms, 0, MAX_TERMS * sizeof *terms);
    for (uint32_t k = 0; k < depth; k++) {
        if (dtype == K_F16)
            split(k_f32_from_f16(row[k]), &terms[0][k], &terms[1][k]);
        else
            terms[0][k] = widen_factor(row[k]);
    }
}

static void split_activations(const float *x, uint32_t depth, float terms[MAX_TERMS][TILE_DEPTH])
{
    memset(terms, 0, MAX_TERMS * sizeof *terms);
    for (uint32_t k = 0; k < depth; k++)
        split(x[k], &terms[0][k], &terms[1][k]);
}

/* Returns c + (chain over even k + chain over odd k). */
static float add_product(float c, const float w[TILE_DEPTH], const float x[TILE_DEPTH])
{
    float even = 0.0f, odd = 0.0f;
    for (uint32_t k = 0; k < TILE_DEPTH; k += 2) {
        even = fma_flushed(w[k], x[k], even);
        odd = fma_flushed(w[k + 1], x[k + 1], odd);
    }
    return add_flushed(c, add_flushed(even, odd));
}

float ref_dot_tile(const uint16_t *row, enum k_dtype dtype, const float *x, uint32_t n_cols, uint32_t x_terms)
{
    uint32_t w_terms = dtype == K_F16 ? 2 : 1;
    float w[MAX_TERMS][TILE_DEPTH], terms[MAX_TERMS][TILE_DEPTH], c = 0.0f;
    for (uint32_t column = 0; column < n_cols; column += TILE_DEPTH) {
        uint32_t depth = n_cols - column < TILE_DEPTH ? n_cols - column : TILE_DEPTH;
        split_weights(row + column, dtype, depth, w);
        split_activations(x + column, depth, terms);
        for (uint32_t i = 0; i < x_terms; i++)
            for (uint32_t j = 0; j < w_terms; j++)
                c = add_product(c, w[j], terms[i]);
    }
    return c;
}
