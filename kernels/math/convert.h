/* Conversions between f32 and f16, bf16, e4m3 and e5m2, and from e8m0.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_CONVERT_H
#define QUIRE_KERNELS_MATH_CONVERT_H

#include "kernels/math/bits.h"

#include <stdint.h>

/* Exact; a NaN stays a NaN. A subnormal is built as 2^-14 + value, then 2^-14 is subtracted, so no f32 denormal is an
 * operand (some machines are slow on those). */
K_MATH_FN float k_f32_from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t normal = magnitude + 0x38000000u;
    uint32_t subnormal = k_f32_bits(k_f32_from_bits(magnitude + 0x38800000u) - 0x1p-14f);
    uint32_t special = magnitude | 0x7f800000u;
    uint32_t r = k_select_u32(magnitude < 0x00800000u, subnormal, normal);
    r = k_select_u32(magnitude >= 0x0f800000u, special, r);
    return k_f32_from_bits(r | sign);
}

/* FP8 conversions. e4m3 has no infinity; its NaN has only ones in exponent and mantissa. e5m2 is the upper half of an
 * f16. Exact. */
K_MATH_FN float k_f32_from_e4m3(uint8_t e)
{
    uint32_t sign = (uint32_t)(e & 0x80u) << 24;
    uint32_t r = k_f32_bits(k_f32_from_bits((uint32_t)(e & 0x7fu) << 20) * 0x1p+120f);
    r = k_select_u32((e & 0x7fu) == 0x7fu, 0x7fc00000u, r);
    return k_f32_from_bits(r | sign);
}

K_MATH_FN float k_f32_from_e5m2(uint8_t e)
{
    return k_f32_from_f16((uint16_t)((uint32_t)e << 8));
}

/* Returns half of an e8m0 number: 2^(e - 128); of 255, NaN. Its lower 16 bits are 0. */
K_MATH_FN float k_half_from_e8m0(uint8_t e)
{
    uint32_t r = k_select_u32(e < 2, 0x00200000u << (e & 1), (uint32_t)(e - 1) << 23);
    return k_f32_from_bits(k_select_u32(e == 255, 0x7fc00000u, r));
}

/* Returns the nearest FP8 number, ties to even. |x| must be at most the largest FP8 number, 448 or 57344. */
K_MATH_FN uint8_t k_fp8_from_f32(float x, uint32_t mantissa_bits, float least_normal)
{
    uint32_t bits = k_f32_bits(x), magnitude = bits & 0x7fffffffu, cut = 23 - mantissa_bits;
    uint32_t normal = (magnitude + (1u << (cut - 1)) - 1 + ((magnitude >> cut) & 1u)) >> cut;
    normal -= ((k_f32_bits(least_normal) >> 23) - 1) << mantissa_bits;
    /* A number below the least normal number is a multiple of its last place: adding 2^23 of those rounds to one. */
    float place = least_normal * (float)(1u << 23) * k_f32_from_bits((127u - mantissa_bits) << 23);
    uint32_t subnormal = k_f32_bits(k_f32_from_bits(magnitude) + place) - k_f32_bits(place);
    uint32_t r = k_select_u32(magnitude < k_f32_bits(least_normal), subnormal, normal);
    return (uint8_t)(r | ((bits >> 24) & 0x80u));
}

K_MATH_FN uint8_t k_e4m3_from_f32(float x)
{
    return k_fp8_from_f32(x, 3, 0x1p-6f);
}

K_MATH_FN uint8_t k_e5m2_from_f32(float x)
{
    return k_fp8_from_f32(x, 2, 0x1p-14f);
}

K_MATH_FN float k_f32_from_bf16(uint16_t b)
{
    return k_f32_from_bits((uint32_t)b << 16);
}

/* Rounds to nearest even; |x| >= 65520 gives inf; NaN gives a quiet NaN. Adding 0.5 rounds a result that becomes
 * subnormal to a multiple of 2^-24, the unit in the last place of both. */
K_MATH_FN uint16_t k_f16_from_f32(float x)
{
    uint32_t bits = k_f32_bits(x);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t subnormal = k_f32_bits(k_f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t r = k_select_u32(magnitude < 0x38800000u, subnormal, normal);
    r = k_select_u32(magnitude >= 0x47800000u, 0x7c00u, r);
    r = k_select_u32(magnitude > 0x7f800000u, 0x7e00u | ((magnitude >> 13) & 0x3ffu), r);
    return (uint16_t)(r | (bits >> 16 & 0x8000u));
}

/* Rounds to nearest even; NaN gives a quiet NaN. */
K_MATH_FN uint16_t k_bf16_from_f32(float x)
{
    uint32_t bits = k_f32_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)k_select_u32((bits & 0x7fffffffu) > 0x7f800000u, quiet, rounded);
}

#endif
