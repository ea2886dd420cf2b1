/* Declarations for the files of the tile form (docs/internals/numerics.md §6): vectors in this translation unit's
 * instruction set, the split of a number into two bf16 terms, and the layout of a GEMM's activations in its workspace.
 * Pure; any thread.
 *
 * The workspace: groups of 16 tokens of n_tiles x 2 KiB. A group has one of two layouts:
 *   words:  [tile][term][pair of k][token], (k even, k odd) as bf16 in one 32-bit word: AMX's B
 *           operand, and the load of a vector of tokens;
 *   floats: [tile][token][term][k], for a vector of rows: at most 8 tokens.
 * Columns past the last are zeros. A denormal term is stored as a zero with its sign.
 */
#ifndef QUIRE_KERNELS_CPU_TILE_H
#define QUIRE_KERNELS_CPU_TILE_H

#include "kernels/cpu/cpu.h"

#include <immintrin.h>
#include <string.h>

#define CPU_INLINE static inline __attribute__((always_inline))

#define TILE_DEPTH 32u
#define TILE_PAIRS 16u
#define TILE_TOKENS 16u
#define TILE_MAX_TERMS 2u
#define TILE_GROUP_WORDS (TILE_TOKENS * TILE_PAIRS * TILE_MAX_TERMS) /* per tile of a group */
#define TILE_FLOAT_TOKENS 8u

/* ---- vectors --------------------------------------------------------------------------------- */

#if defined(__AVX512F__)

#define VEC_WIDTH 16u
typedef __m512 vec;
typedef __m512i words;

/* clang-format off */
CPU_INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
CPU_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
CPU_INLINE void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
CPU_INLINE vec vec_splat(float x) { return _mm512_set1_ps(x); }
CPU_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
CPU_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
CPU_INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
CPU_INLINE vec vec_of(words v) { return _mm512_castsi512_ps(v); }
CPU_INLINE words words_of(vec v) { return _mm512_castps_si512(v); }
CPU_INLINE words words_load(const void *p) { return _mm512_loadu_si512(p); }
CPU_INLINE words words_splat(uint32_t x) { return _mm512_set1_epi32((int)x); }
CPU_INLINE words words_add(words a, words b) { return _mm512_add_epi32(a, b); }
CPU_INLINE words words_and(words a, words b) { return _mm512_and_si512(a, b); }
CPU_INLINE words words_or(words a, words b) { return _mm512_or_si512(a, b); }
CPU_INLINE words words_high(words v) { return _mm512_srli_epi32(v, 16); }
CPU_INLINE words words_low(words v) { return _mm512_slli_epi32(v, 16); }
/* clang-format on */
CPU_INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
}

/* a > b, signed, ? yes : no */
CPU_INLINE words words_select_greater(words a, words b, words yes, words no)
{
    return _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), no, yes);
}

/* Stores the high halves of the words, in order. */
CPU_INLINE void words_store_high(uint16_t *p, words v)
{
    _mm256_storeu_si256((__m256i_u *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
}

CPU_INLINE void words_transpose(words r[VEC_WIDTH])
{
    words s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 in each quarter */
        words a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        words c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
        words d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        s[i] = _mm512_unpacklo_epi64(a, c);
        s[i + 1] = _mm512_unpackhi_epi64(a, c);
        s[i + 2] = _mm512_unpacklo_epi64(b, d);
        s[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 4; j++) { /* then the quarters */
        words a = _mm512_shuffle_i32x4(s[j], s[j + 4], 0x88);
        words b = _mm512_shuffle_i32x4(s[j], s[j + 4], 0xdd);
        words c = _mm512_shuffle_i32x4(s[j + 8], s[j + 12], 0x88);
        words d = _mm512_shuffle_i32x4(s[j + 8], s[j + 12], 0xdd);
        r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        r[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        r[j + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        r[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

#else

#define VEC_WIDTH 8u
typedef __m256 vec;
typedef __m256i words;

/* clang-format off */
CPU_INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
CPU_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
CPU_INLINE void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
CPU_INLINE vec vec_splat(float x) { return _mm256_set1_ps(x); }
CPU_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
CPU_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
CPU_INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
CPU_INLINE vec vec_of(words v) { return _mm256_castsi256_ps(v); }
CPU_INLINE words words_of(vec v) { return _mm256_castps_si256(v); }
CPU_INLINE words words_load(const void *p) { return _mm256_loadu_si256((const __m256i_u *)p); }
CPU_INLINE words words_splat(uint32_t x) { return _mm256_set1_epi32((int)x); }
CPU_INLINE words words_add(words a, words b) { return _mm256_add_epi32(a, b); }
CPU_INLINE words words_and(words a, words b) { return _mm256_and_si256(a, b); }
CPU_INLINE words words_or(words a, words b) { return _mm256_or_si256(a, b); }
CPU_INLINE words words_high(words v) { return _mm256_srli_epi32(v, 16); }
CPU_INLINE words words_low(words v) { return _mm256_slli_epi32(v, 16); }
/* clang-format on */
CPU_INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(const void *)p));
}

/* a > b, signed, ? yes : no */
CPU_INLINE words words_select_greater(words a, words b, words yes, words no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(a, b));
}

/* Stores the high halves of the words, in order. */
CPU_INLINE void words_store_high(uint16_t *p, words v)
{
    words high = _mm256_srli_epi32(v, 16);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((__m128i_u *)(void *)p, packed);
}

CPU_INLINE void words_transpose(words r[VEC_WIDTH])
{
    words s[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) { /* 4 x 4 in each half */
        words a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        words c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]);
        words d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
        s[i] = _mm256_unpacklo_epi64(a, c);
        s[i + 1] = _mm256_unpackhi_epi64(a, c);
        s[i + 2] = _mm256_unpacklo_epi64(b, d);
        s[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 4; j++) { /* then the halves */
        r[j] = _mm256_permute2x128_si256(s[j], s[j + 4], 0x20);
        r[j + 4] = _mm256_permute2x128_si256(s[j], s[j + 4], 0x31);
    }
}

#endif

/* A denormal becomes a zero with its sign. */
CPU_INLINE words words_flush(words v)
{
    words magnitude = words_and(v, words_splat(0x7fffffffu));
    return words_select_greater(words_splat(0x00800000u), magnitude, words_and(v, words_splat(0x80000000u)), v);
}
CPU_INLINE vec vec_flush(vec v)
{
    return vec_of(words_flush(words_of(v)));
}

/* Returns one of the two numbers in words of bf16 pairs. */
/* clang-format off */
CPU_INLINE vec vec_even(words v) { return vec_of(words_low(v)); }
CPU_INLINE vec vec_odd(words v) { return vec_of(words_and(v, words_splat(0xffff0000u))); }
/* clang-format on */

/* ---- two bf16 terms -------------------------------------------------------------------------- */

/* Returns bf16(x), in the high half of each word. */
CPU_INLINE words words_round_bf16(words x)
{
    words high = words_splat(0xffff0000u);
    words tie = words_and(words_high(x), words_splat(1));
    words rounded = words_and(words_add(words_add(x, words_splat(0x7fff)), tie), high);
    words quiet = words_or(words_and(x, high), words_splat(0x00400000u));
    words magnitude = words_and(x, words_splat(0x7fffffffu));
    return words_select_greater(magnitude, words_splat(0x7f800000u), quiet, rounded);
}

/* Splits x into factors of a product. Denormals are zeros. */
CPU_INLINE void vec_split(vec x, words *high, words *low)
{
    words h = words_round_bf16(words_of(x));
    *high = words_flush(h);
    *low = words_flush(words_round_bf16(words_of(vec_sub(x, vec_of(h)))));
}

/* ---- the workspace --------------------------------------------------------------------------- */

CPU_INLINE uint32_t tile_count(const struct cpu_gemm *task)
{
    return task->tile[task->n_segments];
}

/* Returns a tile's first column, and the end of its segment, which may be inside the tile. */
CPU_INLINE uint32_t tile_column(const struct cpu_gemm *task, uint32_t tile, uint32_t *end)
{
    uint32_t segment = 0;
    while (tile >= task->tile[segment + 1])
        segment++;
    *end = task->column[segment + 1];
    return task->column[segment] + (tile - task->tile[segment]) * TILE_DEPTH;
}

CPU_INLINE uint32_t *tile_group(const struct cpu_gemm *task, uint64_t group)
{
    return (uint32_t *)task->args.workspace_dev + group * tile_count(task) * TILE_GROUP_WORDS;
}

/* Stores one token's activations of a tile, as words `width` apart. */
CPU_INLINE void tile_split_words(const float x[TILE_DEPTH], uint32_t n_terms, uint32_t width, uint32_t *out)
{
    uint16_t terms[TILE_MAX_TERMS][TILE_DEPTH];
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load(x + k), &high, &low);
        words_store_high(terms[0] + k, high);
        words_store_high(terms[1] + k, low);
    }
    for (uint32_t term = 0; term < n_terms; term++) {
        for (uint32_t p = 0; p < TILE_PAIRS; p++)
            memcpy(out + ((uint64_t)term * TILE_PAIRS + p) * width, &terms[term][2 * p], 4);
    }
}

CPU_INLINE void tile_split_floats(const float x[TILE_DEPTH], uint32_t n_terms, float *out)
{
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load(x + k), &high, &low);
        vec_store(out + k, vec_of(high));
        if (n_terms > 1)
            vec_store(out + TILE_DEPTH + k, vec_of(low));
    }
}

/* Stores a piece's share of the activations in the workspace: groups of `width` tokens as words, or a group of at most
 * max_float_tokens as floats. */
CPU_INLINE void tile_split(const struct cpu_gemm *task, uint32_t width, uint32_t max_float_tokens, struct k_piece piece)
{
    const struct k_gemm_args *a = &task->args;
    const uint32_t n_cols = a->weight->n_cols, n_terms = task->n_terms;
    const uint64_t n_tiles = tile_count(task);
    const uint64_t n_groups = (a->n_tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    uint64_t begin, end;
    k_pool_share(n_groups * n_tiles, piece, &begin, &end);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t group = unit / n_tiles, tile = unit % n_tiles;
        uint32_t first = (uint32_t)group * TILE_TOKENS, end_column;
        uint32_t column = tile_column(task, (uint32_t)tile, &end_column);
        uint32_t n = a->n_tokens - first < TILE_TOKENS ? a->n_tokens - first : TILE_TOKENS;
        uint32_t depth = end_column - column < TILE_DEPTH ? end_column - column : TILE_DEPTH;
        uint32_t *out = tile_group(task, group);
        bool as_floats = n <= max_float_tokens;
        for (uint32_t t = 0; t < (as_floats ? n : width); t++) {
            float padded[TILE_DEPTH] = {0};
            const float *x = a->x_dev + (uint64_t)(first + t) * n_cols + column;
            if (t >= n || depth < TILE_DEPTH) {
                if (t < n)
                    memcpy(padded, x, depth * sizeof *x);
                x = padded;
            }
            if (as_floats)
                tile_split_floats(x, n_terms, (float *)(void *)out + (tile * n + t) * n_terms * TILE_DEPTH);
            else
                tile_split_words(x, n_terms, width, out + tile * n_terms * TILE_PAIRS * width + t);
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Loads a tile's part of one row as bf16, in one term (BF16) or two (F16), padded with zeros from `end` on. */
CPU_INLINE void tile_stage_row(const unsigned char *row, enum k_dtype dtype, uint32_t column, uint32_t end,
                               uint16_t first[TILE_DEPTH], uint16_t second[TILE_DEPTH])
{
    uint32_t depth = end - column < TILE_DEPTH ? end - column : TILE_DEPTH;
    uint16_t stored[TILE_DEPTH] = {0};
    memcpy(stored, (const uint16_t *)(const void *)row + column, depth * sizeof *stored);
    if (dtype == K_BF16) {
        memcpy(first, stored, sizeof stored);
        return;
    }
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load_f16(stored + k), &high, &low);
        words_store_high(first + k, high);
        words_store_high(second + k, low);
    }
}

/* Returns the number of bf16 terms of a weight. */
CPU_INLINE uint32_t tile_weight_terms(enum k_dtype dtype)
{
    return dtype == K_F16 ? 2 : 1;
}

/* ---- work of a piece ------------------------------------------------------------------------- */

#define TILE_SHARE_ROWS 16u /* a piece's rows: 16 at a time, so that few row blocks are incomplete */

/* Adds the bias last, with denormals kept. */
CPU_INLINE void tile_add_bias(const struct k_gemm_args *a, const struct host_part *part, uint32_t row_begin,
                              uint32_t row_end)
{
    for (uint32_t t = 0; a->bias_dev && t < a->n_tokens; t++) {
        float *y = a->y_dev + (uint64_t)t * a->weight->n_rows + part->first_row;
        for (uint32_t i = row_begin; i < row_end; i++)
            y[i] += a->bias_dev[part->first_row + i];
    }
}

#endif
