/* Functions of kernels/math/ on 16 lanes: the same operations in the same order, and so the same bits. Pure; any
 * thread. */
#ifndef QUIRE_KERNELS_CPU_LANES_MATH_H
#define QUIRE_KERNELS_CPU_LANES_MATH_H

#include "kernels/cpu/simd/lanes.h"
#include "kernels/math/exp.h"

CPU_INLINE __m256 lanes_exp8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(0x1.8p+23f);
    __m256 shifted = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)), magic);
    __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e430p-1f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c610p-29f), r);
    __m256 p = _mm256_set1_ps(0x1.6b4536p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123dccp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555862p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.55548ap-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffap-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i e = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e));
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(K_EXP_LOW), _CMP_LE_OQ), y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, _mm256_set1_ps(K_EXP_HIGH), _CMP_GE_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#if defined(__AVX512F__)

CPU_INLINE lanes lanes_tanh(lanes x)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p+23f), two = _mm512_set1_ps(2.0f), limit = _mm512_set1_ps(10.0f);
    const __m512i sign_bit = _mm512_set1_epi32(INT32_MIN);
    __m512i bits = _mm512_castps_si512(x), sign = _mm512_and_si512(bits, sign_bit);
    __m512 y = _mm512_min_ps(limit, _mm512_castsi512_ps(_mm512_xor_si512(bits, sign))); /* a NaN is second, and stays */
    y = _mm512_add_ps(y, y);
    __m512 shifted = _mm512_add_ps(_mm512_mul_ps(y, _mm512_set1_ps(0x1.715476p+0f)), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e430p-1f), y);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c610p-29f), r);
    __m512 p = _mm512_set1_ps(0x1.6b4536p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123dccp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555862p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55548ap-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffap-2f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    __m512i e = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    __m512 power = _mm512_castsi512_ps(_mm512_add_epi32(e, _mm512_set1_epi32(0x3f800000)));
    __m512 t = _mm512_fmadd_ps(power, p, _mm512_sub_ps(power, _mm512_set1_ps(1.0f)));
    t = _mm512_div_ps(t, _mm512_add_ps(t, two));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(t), sign));
}

CPU_INLINE lanes lanes_exp(lanes x)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p+23f);
    __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e430p-1f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c610p-29f), r);
    __m512 p = _mm512_set1_ps(0x1.6b4536p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123dccp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555862p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55548ap-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffap-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i e = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), e));
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(K_EXP_LOW), _CMP_LE_OQ), _mm512_setzero_ps());
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(K_EXP_HIGH), _CMP_GE_OQ),
                           _mm512_set1_ps(__builtin_inff()));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

#else

CPU_INLINE __m256 lanes_tanh8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(0x1.8p+23f), two = _mm256_set1_ps(2.0f), limit = _mm256_set1_ps(10.0f);
    __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
    __m256 y = _mm256_min_ps(limit, _mm256_xor_ps(x, sign)); /* a NaN is the second operand and stays */
    y = _mm256_add_ps(y, y);
    __m256 shifted = _mm256_add_ps(_mm256_mul_ps(y, _mm256_set1_ps(0x1.715476p+0f)), magic);
    __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e430p-1f), y);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c610p-29f), r);
    __m256 p = _mm256_set1_ps(0x1.6b4536p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123dccp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555862p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.55548ap-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffap-2f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
    __m256i e = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32(0x3f800000)));
    __m256 t = _mm256_fmadd_ps(power, p, _mm256_sub_ps(power, _mm256_set1_ps(1.0f)));
    return _mm256_or_ps(_mm256_div_ps(t, _mm256_add_ps(t, two)), sign);
}

CPU_INLINE lanes lanes_tanh(lanes x)
{
    return (lanes){lanes_tanh8(x.low), lanes_tanh8(x.high)};
}

CPU_INLINE lanes lanes_exp(lanes x)
{
    return (lanes){lanes_exp8(x.low), lanes_exp8(x.high)};
}

#endif

#endif
