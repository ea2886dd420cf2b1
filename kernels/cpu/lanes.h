/* The 16 lanes of docs/internals/numerics.md §4 in this translation unit's instruction set: one AVX-512 register, or
 * two AVX2 registers. Files that include this header are built once for each set (kernels/CMakeLists.txt). Pure; any
 * thread. */
#ifndef QUIRE_KERNELS_CPU_LANES_H
#define QUIRE_KERNELS_CPU_LANES_H

#include "kernels/math/lane_sum.h"

#include <immintrin.h>

#define CPU_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

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

#else

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

/* e5m2 is the upper half of an f16. */
CPU_INLINE lanes lanes_load_e5m2(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i_u *)(const void *)p));
    return lanes_from_f16(_mm256_slli_epi16(wide, 8));
}

/* Returns e4m3 / 256, for numbers other than NaN: the exponent is at f16's position, whose bias is 8 more. */
CPU_INLINE lanes lanes_load_e4m3(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)(const void *)p));
    return lanes_from_f16(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80)));
}

/* Returns the largest lane of each of eight, for numbers other than NaN. */
CPU_INLINE __m256 lanes_largest8(const lanes s[8])
{
    __m256 h[8], f[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        h[i] = lanes_halve_max(s[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        f[i] = _mm256_max_ps(_mm256_blend_ps(h[i], h[i + 4], 0xf0), _mm256_permute2f128_ps(h[i], h[i + 4], 0x21));
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2)
        f[i] = _mm256_max_ps(_mm256_blend_ps(f[i], f[i + 1], 0xcc), _mm256_shuffle_ps(f[i], f[i + 1], 0x4e));
    return _mm256_max_ps(_mm256_shuffle_ps(f[0], f[2], 0x88), _mm256_shuffle_ps(f[0], f[2], 0xdd));
}

/* Returns eight lane sums, with or without the first step. A blend and a shuffle combine the two sides of a step; two
 * shuffles would compete for the only unit that executes them. */
CPU_INLINE __m256 lanes_fold8_halves(const __m256 h[8])
{
    __m256 f[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* s[i] and s[i + 4], the halves of a register: 4 apart */
        f[i] = _mm256_add_ps(_mm256_blend_ps(h[i], h[i + 4], 0xf0), _mm256_permute2f128_ps(h[i], h[i + 4], 0x21));
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) /* 2 apart: 0 0 1 1, 4 4 5 5 and 2 2 3 3, 6 6 7 7 */
        f[i] = _mm256_add_ps(_mm256_blend_ps(f[i], f[i + 1], 0xcc), _mm256_shuffle_ps(f[i], f[i + 1], 0x4e));
    return _mm256_add_ps(_mm256_shuffle_ps(f[0], f[2], 0x88), _mm256_shuffle_ps(f[0], f[2], 0xdd));
}

CPU_INLINE __m256 lanes_fold8(const lanes s[8])
{
    __m256 h[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        h[i] = lanes_halve(s[i]);
    return lanes_fold8_halves(h);
}

CPU_INLINE __m128 lanes_fold4_halves(const __m256 h[4])
{
    __m256 ac = _mm256_add_ps(_mm256_permute2f128_ps(h[0], h[2], 0x20),
                              _mm256_permute2f128_ps(h[0], h[2], 0x31)); /* a a a a c c c c */
    __m256 bd = _mm256_add_ps(_mm256_permute2f128_ps(h[1], h[3], 0x20), _mm256_permute2f128_ps(h[1], h[3], 0x31));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x44), _mm256_shuffle_ps(ac, bd, 0xee)); /* a a b b c c d d */
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xb1)); /* at 0, 2, 4, 6 */
    return _mm_shuffle_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1), 0x88);
}

/* Computes n lane sums after the first step of the fold. n is a multiple of 4. */
CPU_INLINE void lanes_fold_halves(const __m256 *h, const uint32_t n, float *out)
{
    uint32_t i = 0;
#pragma GCC unroll 4
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, lanes_fold8_halves(h + i));
    if (i < n)
        _mm_storeu_ps(out + i, lanes_fold4_halves(h + i));
}

/* Loads the last n < 16 elements of a row, padded with zeros. */
CPU_INLINE lanes lanes_load_last_f32(const float *p, uint32_t n)
{
    float group[K_LANES] = {0};
    memcpy(group, p, n * sizeof *p);
    return lanes_load_f32(group);
}

#endif
