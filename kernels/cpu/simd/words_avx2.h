/* The vectors of kernels/cpu/simd/words.h in AVX2 registers of 8 words. words.h includes it; the functions are those of
 * words_avx512.h. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_WORDS_AVX2_H
#define QUIRE_KERNELS_CPU_SIMD_WORDS_AVX2_H

#include "kernels/cpu/simd/inline.h"

#include <stdint.h>
#include <immintrin.h>

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
