/* e^x in f32: for softmax and SiLU, and, in few instructions, for attention in the mma form.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_EXP_H
#define QUIRE_KERNELS_MATH_EXP_H

#include "kernels/math/bits.h"

#include <stdint.h>

#define K_EXP_LOW (-0x1.5d5894p+6f) /* -87.3365: at and below, 0; just above, a normal number */
#define K_EXP_HIGH 0x1.62e426p+6f /* 88.7228: at and above, +inf */

/* Returns e^x for x < K_EXP_HIGH; x must not be NaN. The largest error over every float between the two limits is 0.90
 * ulp. k_exp(0) is 1. The polynomial is 1 + r + c2 r² + ... + c6 r⁶, fitted for least relative error (4.0e-9) on |r| <=
 * ln2 / 2. */
K_MATH_FN float k_exp_in_range(float x)
{
    /* The sum's low bits hold n = rint(x log2 e), which stays far inside ±2^21. */
    float shifted = x * 0x1.715476p+0f + 0x1.8p+23f;
    float n = shifted - 0x1.8p+23f;
    float r = K_FMAF(n, -0x1.62e430p-1f, x);
    r = K_FMAF(n, 0x1.05c610p-29f, r);
    float p = 0x1.6b4536p-10f;
    p = K_FMAF(p, r, 0x1.123dccp-7f);
    p = K_FMAF(p, r, 0x1.555862p-5f);
    p = K_FMAF(p, r, 0x1.55548ap-3f);
    p = K_FMAF(p, r, 0x1.fffffap-2f);
    p = K_FMAF(p, r, 1.0f);
    p = K_FMAF(p, r, 1.0f);
    /* Adding n to the exponent field is an exact scaling: the result is normal for every remaining x. */
    uint32_t scaled = k_f32_bits(p) + (k_f32_bits(shifted) << 23);
    return k_f32_from_bits(k_select_u32(x <= K_EXP_LOW, 0, scaled));
}

K_MATH_FN float k_exp(float x)
{
    uint32_t scaled = k_f32_bits(k_exp_in_range(x));
    scaled = k_select_u32(x >= K_EXP_HIGH, 0x7f800000u, scaled);
    scaled = k_select_u32(x != x, k_f32_bits(x) | 0x00400000u, scaled);
    return k_f32_from_bits(scaled);
}

/* Returns the larger number, or NaN if x is NaN. One instruction on sm_80. `limit` is a constant. */
K_MATH_FN float k_max_nan(float x, float limit)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(limit));
    return r;
#else
    return x < limit ? limit : x;
#endif
}

/* Returns e^x for x <= 0 in 8 instructions. The result is immediately rounded to f16: it is attention's p in the mma
 * form. e^x = 2^n 2^f with n + f = x log2 e, and 2^f is a polynomial of degree 3 fitted for least relative error on |f|
 * <= 1/2: 7.48e-5. Three more errors add to it. The constant for log2 e is off by 1.32e-8 of itself, which gives 18 ·
 * 1.9e-8 · ln 2 = 2.4e-7. f is rounded once, 2^-26 ln 2 = 1.1e-8. Three fmas on sums of at most 1.42, over 2^f, give at
 * most 2^-24 (1 + 1/2 · 0.9 + 1/4 · 0.5): 1.4e-7. The total is below 7.53e-5 = 2^-13.69; the rounding to f16 adds up to
 * 2^-11. c0 is 1 - 7.2e-5, so f16(k_exp_half(0)) is 1. Below -18, including -inf, the result is e^-18 < 2^-25, whose
 * f16 is +0. A NaN stays a NaN if its lowest 9 bits are zero, as x86's NaN and NaNs from f16 are. NVIDIA's NaN,
 * 0x7fffffff, becomes the largest number, whose f16 is +inf: a row with such a p has sums of infinities over
 * infinities, which are NaN.
 */
K_MATH_FN float k_exp_half(float x)
{
    float y = k_max_nan(x, -18.0f);
    float shifted = K_FMAF(y, 0x1.715476p+0f, 0x1.8p+23f);
    float f = K_FMAF(y, 0x1.715476p+0f, 0x1.8p+23f - shifted);
    float p = 0x1.c3f760p-5f;
    p = K_FMAF(p, f, 0x1.f0de1ap-3f);
    p = K_FMAF(p, f, 0x1.62f31ap-1f);
    p = K_FMAF(p, f, 0x1.fff692p-1f);
    return k_f32_from_bits(k_f32_bits(p) + (k_f32_bits(shifted) << 23));
}

#endif
