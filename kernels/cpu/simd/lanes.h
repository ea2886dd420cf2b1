/* The 16 lanes of docs/internals/numerics.md §4 in this translation unit's instruction set: one AVX-512 register, or
 * two AVX2 registers. Files that include this header are built once for each set (kernels/CMakeLists.txt). Pure; any
 * thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_LANES_H
#define QUIRE_KERNELS_CPU_SIMD_LANES_H

#include "kernels/math/lane_sum.h"

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include "kernels/cpu/simd/lanes_avx512.h"
#else
#include "kernels/cpu/simd/lanes_avx2.h"
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
