/* The 16 lanes of kernels/cpu/simd/lanes.h in one AVX-512 register. lanes.h includes it; the functions are those of
 * lanes_avx2.h. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_LANES_AVX512_H
#define QUIRE_KERNELS_CPU_SIMD_LANES_AVX512_H

#include "kernels/cpu/simd/inline.h"

#include <stdint.h>
#include <immintrin.h>

typedef __m512 lanes;

/* clang-format off */
CPU_INLINE lanes lanes_zero(void) { return _mm512_setzero_ps(); }
CPU_INLINE lanes lanes_splat(float x) { return _mm512_set1_ps(x); }
CPU_INLINE lanes lanes_load_f32(const float *p) { return _mm512_loadu_ps(p); }
CPU_INLINE void lanes_store_f32(float *p, lanes v) { _mm512_storeu_ps(p, v); }
CPU_INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
CPU_INLINE lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
CPU_INLINE lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
CPU_INLINE lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
CPU_INLINE lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
CPU_INLINE lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
/* clang-format on */

/* Returns lanes j of a with from <= j < to, and the other lanes of b. from and to may lie outside of 0..16. */
CPU_INLINE lanes lanes_range(lanes a, lanes b, int32_t from, int32_t to)
{
    const __m512i j = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 inside = _mm512_cmpge_epi32_mask(j, _mm512_set1_epi32(from)) &
                       _mm512_cmplt_epi32_mask(j, _mm512_set1_epi32(to));
    return _mm512_mask_blend_ps(inside, b, a);
}

CPU_INLINE lanes lanes_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
}

CPU_INLINE lanes lanes_from_f16(__m256i h)
{
    return _mm512_cvtph_ps(h);
}

CPU_INLINE lanes lanes_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)p)));
}

CPU_INLINE lanes lanes_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* The first step of a fold: 8 apart. */
CPU_INLINE __m256 lanes_halve(lanes a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
CPU_INLINE __m256 lanes_halve_max(lanes a)
{
    return _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

CPU_INLINE float lanes_fold(lanes a)
{
    __m256 b = lanes_halve(a);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

#endif
