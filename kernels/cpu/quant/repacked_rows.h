/* Reads repacked rows (repacked.h): the integers, scales and leasts of ROWS rows, a row in each lane. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_REPACKED_ROWS_H
#define QUIRE_KERNELS_CPU_QUANT_REPACKED_ROWS_H

#include "kernels/cpu/repacked.h"
#include "kernels/cpu/quant/rows.h"
#include "kernels/quant.h"

#include <stdint.h>
#include <immintrin.h>

/* ROWS rows of a chunk. */
struct repacked_chunk {
    const uint8_t *halves, *words;
};

/* Returns the chunk of n columns starting at k. */
CPU_INLINE struct repacked_chunk repacked_chunk_at(const struct host_part *part, uint32_t row, uint32_t k, uint32_t n)
{
    const struct k_weight_view *w = &part->view;
    const struct k_blocks *b = k_blocks_of(w->format.packing);
    const uint8_t *at = part->repacked + row / CPU_REPACKED_ROWS * cpu_repacked_block_bytes(w->format, w->n_cols) +
                        (uint64_t)(k / CPU_REPACKED_CHUNK) *
                            cpu_repacked_chunk_bytes(b, CPU_REPACKED_CHUNK / b->columns);
    const uint32_t lane = row % CPU_REPACKED_ROWS;
    return (struct repacked_chunk){at + lane * 2, at + cpu_repacked_words_at(b, n / b->columns) + lane * 4};
}

CPU_INLINE ints repacked_word(struct repacked_chunk c, const uint32_t i)
{
    return load_ints(c.words + i * (4 * CPU_REPACKED_ROWS));
}

CPU_INLINE floats repacked_half(struct repacked_chunk c, const uint32_t i)
{
    const void *at = c.halves + i * (2 * CPU_REPACKED_ROWS);
#if defined(__AVX512VNNI__)
    return _mm512_cvtph_ps(_mm256_loadu_si256(at));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128(at));
#endif
}

/* The same number as 16 bits, not widened. */
CPU_INLINE ints repacked_bits(struct repacked_chunk c, const uint32_t i)
{
    const void *at = c.halves + i * (2 * CPU_REPACKED_ROWS);
#if defined(__AVX512VNNI__)
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(at));
#else
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(at));
#endif
}

/* Moves n bits of each byte from one position to another. */
CPU_INLINE ints move_bits(ints v, const int from, const int n, const int to)
{
    const ints mask = OP(set1_epi8)((char)(((1 << n) - 1) << to));
    v = from > to ? OP(srli_epi32)(v, (unsigned)(from - to)) : OP(slli_epi32)(v, (unsigned)(to - from));
    return OP_SI(and)(v, mask);
}

/* Returns q + z for each byte's code. */
CPU_INLINE ints number_of(const struct k_codes codes, ints v, const int z)
{
    uint32_t words[4] = {0};
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        words[i / 4] |= (uint32_t)((k_code_number(codes, i) + z) & 255) << 8 * (i % 4);
    const int a = (int)words[0], b = (int)words[1], c = (int)words[2], d = (int)words[3];
#if defined(__AVX512VNNI__)
    return _mm512_shuffle_epi8(_mm512_setr4_epi32(a, b, c, d), v);
#else
    return _mm256_shuffle_epi8(_mm256_setr_epi32(a, b, c, d, a, b, c, d), v);
#endif
}

CPU_INLINE ints either(ints a, ints b)
{
    return OP_SI(or)(a, b);
}

/* Returns n of columns 4 s to 4 s + 3 of the chunk, for each row. */
CPU_INLINE ints repacked_bytes(struct repacked_chunk c, const enum k_packing packing, const uint32_t s)
{
    const uint32_t r = s / 8, i = s % 8, half = r / 4;
    const int r4 = (int)(r % 2 * 4), of_half = (int)(r % 4), nibble = (int)(i / 4 * 4);
    switch (packing) {
    case K_PACKING_Q8_0: return repacked_word(c, s);
    case K_PACKING_Q4_0:
    case K_PACKING_Q4_1: return move_bits(repacked_word(c, r * 4 + i % 4), nibble, 4, 0);
    case K_PACKING_MXFP4:
        return number_of(k_codes_e2m1(), move_bits(repacked_word(c, r * 4 + i % 4), nibble, 4, 0), offset_of(packing));
    case K_PACKING_IQ4_NL:
        return number_of(k_codes_iq4(), move_bits(repacked_word(c, r * 4 + i % 4), nibble, 4, 0), offset_of(packing));
    case K_PACKING_IQ4_XS:
        return number_of(k_codes_iq4(), move_bits(repacked_word(c, 1 + r * 4 + i % 4), nibble, 4, 0),
                         offset_of(packing));
    case K_PACKING_Q5_0:
    case K_PACKING_Q5_1:
        return either(move_bits(repacked_word(c, r * 5 + 1 + i % 4), nibble, 4, 0),
                      move_bits(repacked_word(c, r * 5), (int)i, 1, 4));
    case K_PACKING_Q4_K: return move_bits(repacked_word(c, 3 + r / 2 * 8 + i), r4, 4, 0);
    case K_PACKING_Q5_K:
        return either(move_bits(repacked_word(c, cpu_repacked_place(packing, 11 + r / 2 * 8 + i)), r4, 4, 0),
                      move_bits(repacked_word(c, cpu_repacked_place(packing, 3 + i)), (int)r, 1, 4));
    case K_PACKING_Q6_K:
        return either(
            move_bits(repacked_word(c, cpu_repacked_place(packing, half * 16 + r % 2 * 8 + i)), of_half / 2 * 4, 4, 0),
            move_bits(repacked_word(c, cpu_repacked_place(packing, 32 + half * 8 + i)), 2 * of_half, 2, 4));
    case K_PACKING_Q3_K:
        return either(move_bits(repacked_word(c, 8 + half * 8 + i), 2 * of_half, 2, 0),
                      move_bits(repacked_word(c, i), (int)r, 1, 2));
    default: return move_bits(repacked_word(c, 4 + half * 8 + i), 2 * of_half, 2, 0); /* Q2_K */
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
CPU_INLINE ints six_bits_of(struct repacked_chunk c, const uint32_t kind, const uint32_t j)
{
    const int byte = (int)(j % 4 * 8);
    if (j < 4)
        return word_bits(repacked_word(c, kind), byte, 6, 0);
    return either(word_bits(repacked_word(c, 2), byte + 4 * (int)kind, 4, 0),
                  word_bits(repacked_word(c, kind), byte + 6, 2, 4));
}

/* Returns the scale of group j of the chunk. */
CPU_INLINE floats repacked_scale(struct repacked_chunk c, const enum k_packing packing, const uint32_t j)
{
    const int byte = (int)(j % 4 * 8);
    ints by;
    switch (packing) {
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K: by = six_bits_of(c, 0, j); break;
    case K_PACKING_Q6_K:
        by = OP(srai_epi32)(
            OP(slli_epi32)(repacked_word(c, cpu_repacked_place(packing, 48 + j / 4)), (unsigned)(24 - byte)), 24);
        break;
    case K_PACKING_Q3_K:
        by = either(word_bits(repacked_word(c, 24 + j / 4 % 2), byte + (int)(j / 8 * 4), 4, 0),
                    word_bits(repacked_word(c, 26), byte + (int)(j / 4 * 2), 2, 4));
        by = OP(sub_epi32)(by, OP(set1_epi32)(32));
        break;
    case K_PACKING_Q2_K: by = word_bits(repacked_word(c, j / 4), byte, 4, 0); break;
    case K_PACKING_IQ4_XS:
        by = either(word_bits(repacked_word(c, 0), (int)j * 4, 4, 0), word_bits(repacked_bits(c, 1), (int)j * 2, 2, 4));
        by = OP(sub_epi32)(by, OP(set1_epi32)(32));
        break;
    case K_PACKING_MXFP4: return as_floats(OP(slli_epi32)(repacked_bits(c, j), 16)); /* bf16 */
    default: return repacked_half(c, has_least(packing) ? 2 * j : j);
    }
    return OP(mul_ps)(repacked_half(c, 0), OP(cvtepi32_ps)(by));
}

/* Returns the least of group j, for a format that has one. */
CPU_INLINE floats repacked_least(struct repacked_chunk c, const enum k_packing packing, const uint32_t j)
{
    ints by;
    switch (packing) {
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K: by = six_bits_of(c, 1, j); break;
    case K_PACKING_Q2_K: by = word_bits(repacked_word(c, j / 4), (int)(j % 4 * 8) + 4, 4, 0); break;
    default: return repacked_half(c, 2 * j + 1);
    }
    return OP(mul_ps)(repacked_half(c, 1), OP(sub_ps)(OP(set1_ps)(-0.0f), OP(cvtepi32_ps)(by)));
}

#endif
