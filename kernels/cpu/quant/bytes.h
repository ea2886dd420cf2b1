/* Reads and moves the bytes of quantized weights, with AVX2 instructions: what unpack.h and scales.h share. Pure; any
 * thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_BYTES_H
#define QUIRE_KERNELS_CPU_QUANT_BYTES_H

#include "kernels/cpu/simd/inline.h"
#include "kernels/format.h"
#include "kernels/math/codes.h"

#include <stdint.h>
#include <immintrin.h>
#include <string.h>

#define CHUNK 256u /* columns that are unpacked at a time, aligned to this number */
#define CHUNK_GROUPS 17u /* maximum number of groups in a chunk; each has at least 16 columns */

CPU_INLINE __m256i load_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i_u *)(const void *)p);
}
CPU_INLINE __m128i load_16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i_u *)(const void *)p);
}
CPU_INLINE void store_32(int8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i_u *)(void *)p, v);
}
CPU_INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}
CPU_INLINE uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Returns bits [from, from + n) of each byte, shifted to the bottom. */
CPU_INLINE __m256i bits_of(__m256i v, const int from, const int n)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, from), _mm256_set1_epi8((char)((1 << n) - 1)));
}

/* Splits 16 bytes into 4-bit numbers: first the low halves, then the high ones. */
CPU_INLINE __m256i halves_of(__m128i v)
{
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* Returns 16 in the bytes whose bit is set. */
CPU_INLINE __m256i fifth_of(uint32_t bits)
{
    const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), from);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit), _mm256_set1_epi8(16));
}

/* Returns the number of each byte's code. */
CPU_INLINE __m256i numbers_of(const struct k_codes codes, __m256i v)
{
    const int a = (int)codes.words[0], b = (int)codes.words[1], c = (int)codes.words[2], d = (int)codes.words[3];
    return _mm256_shuffle_epi8(_mm256_setr_epi32(a, b, c, d, a, b, c, d), v);
}

/* The same as in kernels/format.c, as compile-time constants. */
CPU_INLINE uint32_t block_bytes(const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0: return 34;
    case K_PACKING_Q4_0: return 18;
    case K_PACKING_Q4_1: return 20;
    case K_PACKING_Q5_0: return 22;
    case K_PACKING_Q5_1: return 24;
    case K_PACKING_MXFP4: return 17;
    case K_PACKING_IQ4_NL: return 18;
    case K_PACKING_Q2_K: return 84;
    case K_PACKING_Q3_K: return 110;
    case K_PACKING_Q4_K: return 144;
    case K_PACKING_Q5_K: return 176;
    case K_PACKING_IQ4_XS: return 136;
    default: return 210;
    }
}

#endif
