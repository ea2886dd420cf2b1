/* The 16 lanes of kernels/cpu/simd/lanes.h in two AVX2 registers. lanes.h includes it; the functions are those of
 * lanes_avx512.h. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_LANES_AVX2_H
#define QUIRE_KERNELS_CPU_SIMD_LANES_AVX2_H

#include "kernels/cpu/simd/inline.h"

#include <stdint.h>
#include <immintrin.h>

typedef struct {
    __m256 low;  /* lanes 0..7 */
    __m256 high; /* lanes 8..15 */
} lanes;

/* clang-format off */
CPU_INLINE lanes lanes_zero(void) { return (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
CPU_INLINE lanes lanes_splat(float x) { return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
CPU_INLINE lanes lanes_load_f32(const float *p) { return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
/* clang-format on */
CPU_INLINE void lanes_store_f32(float *p, lanes v)
{
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}
CPU_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
CPU_INLINE lanes lanes_add(lanes a, lanes b)
{
    return (lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
CPU_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return (lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
CPU_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return (lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
CPU_INLINE lanes lanes_div(lanes a, lanes b)
{
    return (lanes){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
CPU_INLINE lanes lanes_max(lanes a, lanes b) /* a > b ? a : b */
{
    return (lanes){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

CPU_INLINE __m256 range8(__m256 a, __m256 b, __m256i j, int32_t from, int32_t to)
{
    __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), j),
                                         _mm256_cmpgt_epi32(_mm256_set1_epi32(to), j));
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(inside));
}

/* Returns lanes j of a with from <= j < to, and the other lanes of b. from and to may lie outside of 0..16. */
CPU_INLINE lanes lanes_range(lanes a, lanes b, int32_t from, int32_t to)
{
    return (lanes){range8(a.low, b.low, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), from, to),
                   range8(a.high, b.high, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), from, to)};
}

CPU_INLINE __m256 widen_f16x8(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(const void *)p));
}

CPU_INLINE lanes lanes_load_f16(const uint16_t *p)
{
    return (lanes){widen_f16x8(p), widen_f16x8(p + 8)};
}

CPU_INLINE lanes lanes_from_f16(__m256i h)
{
    return (lanes){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}

CPU_INLINE __m256 widen_i8x8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)(const void *)p)));
}

CPU_INLINE lanes lanes_load_i8(const uint8_t *p)
{
    return (lanes){widen_i8x8(p), widen_i8x8(p + 8)};
}

CPU_INLINE __m256 widen_bf16x8(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

CPU_INLINE lanes lanes_load_bf16(const uint16_t *p)
{
    return (lanes){widen_bf16x8(p), widen_bf16x8(p + 8)};
}

/* The first step of a fold: 8 apart. */
/* clang-format off */
CPU_INLINE __m256 lanes_halve(lanes a) { return _mm256_add_ps(a.low, a.high); }
CPU_INLINE __m256 lanes_halve_max(lanes a) { return _mm256_max_ps(a.low, a.high); }
/* clang-format on */

CPU_INLINE float lanes_fold(lanes a)
{
    __m256 b = lanes_halve(a);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

#endif
