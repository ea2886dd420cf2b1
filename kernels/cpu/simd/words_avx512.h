/* The vectors of kernels/cpu/simd/words.h in AVX-512 registers of 16 words. words.h includes it; the functions are
 * those of words_avx2.h. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_WORDS_AVX512_H
#define QUIRE_KERNELS_CPU_SIMD_WORDS_AVX512_H

#include "kernels/cpu/simd/inline.h"

#include <stdint.h>
#include <immintrin.h>

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

#endif
