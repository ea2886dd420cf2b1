/* The activations, and 1/sqrt, in f32. Errors are in units in the last place (ulp).
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_ACTIVATION_H
#define QUIRE_KERNELS_MATH_ACTIVATION_H

#include "kernels/math/bits.h"
#include "kernels/math/exp.h"

#include <stdint.h>

/* Largest observed error: 2.4 ulp. Returns -0 if exp(-x) overflows (x <= -88.7228). */
K_MATH_FN float k_silu(float x)
{
    return x / (1.0f + k_exp(-x));
}

/* tanh x = t / (t + 2) with t = e^(2|x|) - 1 = 2^n p + (2^n - 1), where 2|x| = n ln2 + r as in k_exp(), and p = e^r - 1
 * is the same polynomial without its 1. So t and the result keep a small relative error when x is small. With u =
 * 2^-24: p is off by at most 1.8 u of itself (its coefficients by 0.43 u) and by 0.25 u e^r for the rounding of r. n =
 * 0: r is exact, t = p, and the sum and the quotient add u each: 3.8 u. n > 0: t is off by at most 0.9 u e^(2|x|) + u
 * t, of which 2 / (t + 2) reaches the result. This is largest at e^(2|x|) = sqrt 2, 3.4 u, plus u each again. So the
 * bound is 5.4 u everywhere; the largest error over every float is 2.68 ulp. |x| >= 10 gives 1, to which tanh rounds
 * from 9.02 on. -0 gives -0.
 */
K_MATH_FN float k_tanh(float x)
{
    uint32_t sign = k_f32_bits(x) & 0x80000000u;
    float y = k_f32_from_bits(k_f32_bits(x) ^ sign);
    y = k_select_f32(y >= 10.0f, 10.0f, y);
    y = y + y;
    float shifted = y * 0x1.715476p+0f + 0x1.8p+23f;
    float n = shifted - 0x1.8p+23f;
    float r = K_FMAF(n, -0x1.62e430p-1f, y);
    r = K_FMAF(n, 0x1.05c610p-29f, r);
    float p = 0x1.6b4536p-10f;
    p = K_FMAF(p, r, 0x1.123dccp-7f);
    p = K_FMAF(p, r, 0x1.555862p-5f);
    p = K_FMAF(p, r, 0x1.55548ap-3f);
    p = K_FMAF(p, r, 0x1.fffffap-2f);
    p = K_FMAF(p * r, r, r);
    float power = k_f32_from_bits((k_f32_bits(shifted) << 23) + 0x3f800000u); /* 2^n, n from 0 to 29 */
    float t = K_FMAF(power, p, power - 1.0f);
    return k_f32_from_bits(k_f32_bits(t / (t + 2.0f)) | sign);
}

/* Returns x Phi(x), where Phi is the normal distribution: GELU as its paper defines it. With z = |x| / sqrt 2, erfc z =
 * t q(t) e^(-z^2) and t = 1 / (1 + 0.3 z). q is of degree 8, fitted for the least relative error over z from 0 to 10.5,
 * 2.0e-8. From x = -12 to 12 the result is off by at most 3.9e-7 (1.2e-6 if erf is rounded first), and left of -12 it
 * is -0. +inf gives +inf; -inf and NaN give NaN. */
K_MATH_FN float k_gelu(float x)
{
    float z = k_f32_from_bits(k_f32_bits(x) & 0x7fffffffu) * 0x1.6a09e6p-1f;
    float t = 1.0f / K_FMAF(z, 0x1.333334p-2f, 1.0f);
    float q = -0x1.0953e4p-3f;
    q = K_FMAF(q, t, 0x1.f16308p-2f);
    q = K_FMAF(q, t, -0x1.067a50p-1f);
    q = K_FMAF(q, t, 0x1.18ac66p-1f);
    q = K_FMAF(q, t, -0x1.852b34p-4f);
    q = K_FMAF(q, t, 0x1.b885eep-3f);
    q = K_FMAF(q, t, 0x1.2fb1f6p-3f);
    q = K_FMAF(q, t, 0x1.5da43cp-3f);
    q = K_FMAF(q, t, 0x1.5a7ef2p-3f);
    float tail = 0.5f * ((t * q) * k_exp(-(z * z))); /* the tail of the distribution on the far side of |x| */
    return x * k_select_f32(x < 0.0f, tail, 1.0f - tail);
}

/* Returns GELU by its approximation with tanh. With u = 2^-24: the argument of tanh is off by at most 3.5 u of itself,
 * where tanh's slope passes on no more than that of the result, and 1 + tanh by that, tanh's 5.4 u and one rounding. Left
 * of -5.4 the sum is 0 or a few u, and the result lies within 10 u of x of the exact one. */
K_MATH_FN float k_gelu_tanh(float x)
{
    float u = 0x1.988454p-1f * K_FMAF(0x1.6e4e26p-5f * x, x * x, x);
    return (0.5f * x) * (1.0f + k_tanh(u));
}

/* Returns a capped attention score: cap tanh(score / cap), where inverse is 1 / cap rounded. Its magnitude is at most
 * cap. */
K_MATH_FN float k_softcap(float score, float cap, float inverse)
{
    return k_tanh(score * inverse) * cap;
}

/* Largest error: 1.5 ulp. */
K_MATH_FN float k_rsqrt(float x)
{
    return 1.0f / K_SQRTF(x);
}

#endif
