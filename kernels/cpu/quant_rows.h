/* Rows in lanes: the vector types of the int8 kernels, and functions that read repacked rows (panels.h). ROWS rows are
 * in a register: all 16 rows of a block with AVX-512 VNNI, half of them with AVX2. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_ROWS_H
#define QUIRE_KERNELS_CPU_QUANT_ROWS_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/lanes.h"

#if defined(__AVX512VNNI__)
#define ROWS 16u
#define HALVES 1u /* registers for the 16 rows of a block */
#if defined(CPU_AMX_INT8)
#define TOKENS 16u /* a tile's rows */
#define OFFSET 0 /* added to u */
#else
#define TOKENS 8u /* 8 sums of integers, 8 of floats */
#define OFFSET 128
#endif
typedef __m512i ints;
typedef __m512 floats;
#define OP(name) _mm512_##name
#define OP_SI(name) _mm512_##name##_si512
#else
#define ROWS 8u
#define HALVES 2u
#define TOKENS 4u
#define OFFSET 0
typedef __m256i ints;
typedef __m256 floats;
#define OP(name) _mm256_##name
#define OP_SI(name) _mm256_##name##_si256
#endif

CPU_INLINE ints load_ints(const void *p)
{
    return OP_SI(loadu)(p);
}
CPU_INLINE void store_ints(void *p, ints v)
{
    OP_SI(storeu)(p, v);
}
CPU_INLINE ints spread(const uint32_t *p)
{
    return OP(set1_epi32)((int)*p);
}

/* ---- activations ------------------------------------------------------------------------------------- */

/* A group of T tokens in the workspace: u of four columns [steps][T], for tiles [T][steps]; then scales [pieces][T];
 * then Σ u of 16 columns as a float [halves][T]. */
struct inputs {
    uint32_t *u;
    float *scale, *sum;
    uint32_t T;
    uint32_t next_step, next_token; /* words from one to the next */
};

CPU_INLINE uint64_t padded(const struct k_gemm_args *a)
{
    return ((uint64_t)a->weight->n_cols + 31) / 32 * 32;
}

CPU_INLINE struct inputs inputs_at(const struct cpu_gemm *g, uint32_t token)
{
    const uint64_t columns = padded(&g->args);
    const uint32_t left = g->args.n_tokens - token, T = left < TOKENS ? left : TOKENS;
    uint32_t *u = (uint32_t *)g->args.workspace_dev + token * CPU_QUANT_INPUT_WORDS(columns);
    float *scale = (float *)(u + T * columns / 4);
#if defined(CPU_AMX_INT8)
    const uint32_t next_step = 1, next_token = (uint32_t)columns / 4;
#else
    const uint32_t next_step = T, next_token = 1;
#endif
    return (struct inputs){u, scale, scale + T * (columns / 32 + K_SEGMENTS), T, next_step, next_token};
}

/* ---- formats ----------------------------------------------------------------------------------------- */

CPU_INLINE bool has_least(const enum k_packing packing)
{
    return packing == K_PACKING_Q4_1 || packing == K_PACKING_Q5_1 || packing == K_PACKING_Q2_K ||
           packing == K_PACKING_Q4_K || packing == K_PACKING_Q5_K;
}

/* Returns whether groups have 16 columns; otherwise 32. */
CPU_INLINE bool has_sixteens(const enum k_packing packing)
{
    return packing == K_PACKING_Q2_K || packing == K_PACKING_Q3_K || packing == K_PACKING_Q6_K;
}

/* Returns z: q is n - z, where n is unsigned and has up to 8 bits. */
CPU_INLINE int offset_of(const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0: return 128;
    case K_PACKING_Q4_0: return 8;
    case K_PACKING_Q5_0: return 16;
    case K_PACKING_Q6_K: return 32;
    case K_PACKING_Q3_K: return 4;
    default: return 0;
    }
}

/* ---- repacked rows ----------------------------------------------------------------------------------- */

/* ROWS rows of a chunk. */
struct panel_chunk {
    const uint8_t *halves, *words;
};

/* Returns the chunk of n columns starting at k. */
CPU_INLINE struct panel_chunk panel_chunk_at(const struct host_part *part, uint32_t row, uint32_t k, uint32_t n)
{
    const struct k_weight_view *w = &part->view;
    const struct k_blocks *b = k_blocks_of(w->format.packing);
    const uint8_t *at = part->panels + row / CPU_PANEL_ROWS * cpu_panel_bytes(w->format, w->n_cols) +
                        (uint64_t)(k / CPU_PANEL_CHUNK) * cpu_panel_chunk_bytes(b, CPU_PANEL_CHUNK / b->columns);
    const uint32_t lane = row % CPU_PANEL_ROWS;
    return (struct panel_chunk){at + lane * 2, at + cpu_panel_words_at(b, n / b->columns) + lane * 4};
}

CPU_INLINE ints panel_word(struct panel_chunk c, const uint32_t i)
{
    return load_ints(c.words + i * (4 * CPU_PANEL_ROWS));
}

CPU_INLINE floats panel_half(struct panel_chunk c, const uint32_t i)
{
    const void *at = c.halves + i * (2 * CPU_PANEL_ROWS);
#if defined(__AVX512VNNI__)
    return _mm512_cvtph_ps(_mm256_loadu_si256(at));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128(at));
#endif
}

/* Moves n bits of each byte from one position to another. */
CPU_INLINE ints move_bits(ints v, const int from, const int n, const int to)
{
    const ints mask = OP(set1_epi8)((char)(((1 << n) - 1) << to));
    v = from > to ? OP(srli_epi32)(v, (unsigned)(from - to)) : OP(slli_epi32)(v, (unsigned)(to - from));
    return OP_SI(and)(v, mask);
}

CPU_INLINE ints either(ints a, ints b)
{
    return OP_SI(or)(a, b);
}

/* Returns n of columns 4 s to 4 s + 3 of the chunk, for each row. */
CPU_INLINE ints panel_bytes(struct panel_chunk c, const enum k_packing packing, const uint32_t s)
{
    const uint32_t r = s / 8, i = s % 8, half = r / 4;
    const int r4 = (int)(r % 2 * 4), of_half = (int)(r % 4), nibble = (int)(i / 4 * 4);
    switch (packing) {
    case K_PACKING_Q8_0: return panel_word(c, s);
    case K_PACKING_Q4_0:
    case K_PACKING_Q4_1: return move_bits(panel_word(c, r * 4 + i % 4), nibble, 4, 0);
    case K_PACKING_Q5_0:
    case K_PACKING_Q5_1:
        return either(move_bits(panel_word(c, r * 5 + 1 + i % 4), nibble, 4, 0),
                      move_bits(panel_word(c, r * 5), (int)i, 1, 4));
    case K_PACKING_Q4_K: return move_bits(panel_word(c, 3 + r / 2 * 8 + i), r4, 4, 0);
    case K_PACKING_Q5_K:
        return either(move_bits(panel_word(c, cpu_panel_place(packing, 11 + r / 2 * 8 + i)), r4, 4, 0),
                      move_bits(panel_word(c, cpu_panel_place(packing, 3 + i)), (int)r, 1, 4));
    case K_PACKING_Q6_K:
        return either(
            move_bits(panel_word(c, cpu_panel_place(packing, half * 16 + r % 2 * 8 + i)), of_half / 2 * 4, 4, 0),
            move_bits(panel_word(c, cpu_panel_place(packing, 32 + half * 8 + i)), 2 * of_half, 2, 4));
    case K_PACKING_Q3_K:
        return either(move_bits(panel_word(c, 8 + half * 8 + i), 2 * of_half, 2, 0),
                      move_bits(panel_word(c, i), (int)r, 1, 2));
    default: return move_bits(panel_word(c, 4 + half * 8 + i), 2 * of_half, 2, 0); /* Q2_K */
    }
}

/* Moves n bits of each word from position `from`. */
CPU_INLINE ints word_bits(ints v, const int from, const int n, const int to)
{
    const ints mask = OP(set1_epi32)(((1 << n) - 1) << to);
    v = from > to ? OP(srli_epi32)(v, (unsigned)(from - to)) : OP(slli_epi32)(v, (unsigned)(to - from));
    return OP_SI(and)(v, mask);
}

/* Returns the j-th 6-bit number of Q4_K and Q5_K. Word 0 has the scales, word 1 the leasts. */
CPU_INLINE ints six_bits_of(struct panel_chunk c, const uint32_t kind, const uint32_t j)
{
    const int byte = (int)(j % 4 * 8);
    if (j < 4)
        return word_bits(panel_word(c, kind), byte, 6, 0);
    return either(word_bits(panel_word(c, 2), byte + 4 * (int)kind, 4, 0),
                  word_bits(panel_word(c, kind), byte + 6, 2, 4));
}

/* Returns the scale of group j of the chunk. */
CPU_INLINE floats panel_scale(struct panel_chunk c, const enum k_packing packing, const uint32_t j)
{
    const int byte = (int)(j % 4 * 8);
    ints by;
    switch (packing) {
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K: by = six_bits_of(c, 0, j); break;
    case K_PACKING_Q6_K:
        by = OP(srai_epi32)(OP(slli_epi32)(panel_word(c, cpu_panel_place(packing, 48 + j / 4)), (unsigned)(24 - byte)),
                            24);
        break;
    case K_PACKING_Q3_K:
        by = either(word_bits(panel_word(c, 24 + j / 4 % 2), byte + (int)(j / 8 * 4), 4, 0),
                    word_bits(panel_word(c, 26), byte + (int)(j / 4 * 2), 2, 4));
        by = OP(sub_epi32)(by, OP(set1_epi32)(32));
        break;
    case K_PACKING_Q2_K: by = word_bits(panel_word(c, j / 4), byte, 4, 0); break;
    default: return panel_half(c, has_least(packing) ? 2 * j : j);
    }
    return OP(mul_ps)(panel_half(c, 0), OP(cvtepi32_ps)(by));
}

/* Returns the least of group j, for a format that has one. */
CPU_INLINE floats panel_least(struct panel_chunk c, const enum k_packing packing, const uint32_t j)
{
    ints by;
    switch (packing) {
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K: by = six_bits_of(c, 1, j); break;
    case K_PACKING_Q2_K: by = word_bits(panel_word(c, j / 4), (int)(j % 4 * 8) + 4, 4, 0); break;
    default: return panel_half(c, 2 * j + 1);
    }
    return OP(mul_ps)(panel_half(c, 1), OP(sub_ps)(OP(set1_ps)(-0.0f), OP(cvtepi32_ps)(by)));
}

/* A row block is one stream, and the hardware prefetchers stop at the end of a page. For one token and 136 million
 * weights of Q4_0, two cores of a Sapphire Rapids read 21.2 GB/s without this, and 29.4 with it and large pages
 * (panels.c); for Q8_0 24.0 and 27.9. Distances of 2 and 8 KiB, two or four row blocks at once and the first-level
 * cache are slower or the same. Those figures were measured with all of a chunk's lines prefetched at once. With
 * prefetches group by group, as now, a Zen 3 core takes 0.63 of the time for Q8_0, 0.84 for Q4_0 and 0.6 for Q6_K: a
 * core stalls when more than about twenty lines are in flight.
 */
#define AHEAD_BYTES 4096u
CPU_INLINE void fetch_ahead(const uint8_t *at, const uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + AHEAD_BYTES + i, _MM_HINT_T1);
}

#endif
