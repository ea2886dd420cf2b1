/* The elementary functions and conversions of docs/internals/numerics.md §3, the sum of §4 and the counter RNG of §13.
 * All CPU paths produce the same bits.
 *
 * The functions are static inline and free of branches, so a compiler can vectorize a loop over them: a select is a
 * mask, never a jump. They compute no libm function: fma and sqrt are correctly rounded by definition, and rounding to
 * an integer is an addition of a large constant. They assume the default floating-point environment (round to nearest
 * even, denormals kept) and IEEE formats. Pure; any thread.
 *
 * The same source compiles as C and as CUDA. In CUDA, too, fma, division and square root are correctly rounded
 * (-prec-div, -prec-sqrt, no -ftz) and nothing is contracted (-fmad=false).
 */
#ifndef QUIRE_KERNELS_MATH_H
#define QUIRE_KERNELS_MATH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define K_MATH_FN static __host__ __device__ __forceinline__
#define K_FMAF fmaf
#define K_FMA fma
#define K_SQRTF sqrtf
#else
#define K_MATH_FN static inline
#define K_FMAF __builtin_fmaf
#define K_FMA __builtin_fma
#define K_SQRTF __builtin_sqrtf
#endif

K_MATH_FN uint32_t k_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

K_MATH_FN float k_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

K_MATH_FN uint64_t k_f64_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

K_MATH_FN double k_f64_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Returns `yes` if the condition holds, otherwise `no`, by a mask and not by a branch. */
K_MATH_FN uint32_t k_select_u32(bool condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

K_MATH_FN float k_select_f32(bool condition, float yes, float no)
{
    return k_f32_from_bits(k_select_u32(condition, k_f32_bits(yes), k_f32_bits(no)));
}

K_MATH_FN double k_select_f64(bool condition, double yes, double no)
{
    uint64_t mask = 0u - (uint64_t)condition;
    return k_f64_from_bits((k_f64_bits(yes) & mask) | (k_f64_bits(no) & ~mask));
}

/* ---- conversions ----------------------------------------------------------------------------- */

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

/* ---- exp, SiLU, tanh, 1/sqrt ----------------------------------------------------------------------- */

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

/* ---- sin and cos ----------------------------------------------------------------------------- */

/* Both results are rounded to f32 once, from f64 values with a relative error below 2^-44. The largest error is 0.50001
 * ulp. For |x| <= 2^26; NaN for NaN and ±inf. The polynomials are Taylor's, through r^13 and r^14. */
K_MATH_FN void k_sincos(float x, float *sin_out, float *cos_out)
{
    double wide = (double)x;
    double shifted = wide * 0x1.45f306dc9c883p-1 + 0x1.8p+52;
    double k = shifted - 0x1.8p+52;
    uint64_t quadrant = k_f64_bits(shifted);
    double r = K_FMA(k, -0x1.921fb54442d18p+0, wide);
    r = K_FMA(k, -0x1.1a62633145c07p-54, r);
    double r2 = r * r;
    double s = 0x1.6124613a86d09p-33;
    s = K_FMA(s, r2, -0x1.ae64567f544e4p-26);
    s = K_FMA(s, r2, 0x1.71de3a556c734p-19);
    s = K_FMA(s, r2, -0x1.a01a01a01a01ap-13);
    s = K_FMA(s, r2, 0x1.1111111111111p-7);
    s = K_FMA(s, r2, -0x1.5555555555555p-3);
    s = K_FMA(s * r2, r, r);
    double c = -0x1.93974a8c07c9dp-37;
    c = K_FMA(c, r2, 0x1.1eed8eff8d898p-29);
    c = K_FMA(c, r2, -0x1.27e4fb7789f5cp-22);
    c = K_FMA(c, r2, 0x1.a01a01a01a01ap-16);
    c = K_FMA(c, r2, -0x1.6c16c16c16c17p-10);
    c = K_FMA(c, r2, 0x1.5555555555555p-5);
    c = K_FMA(c, r2, -0.5);
    c = K_FMA(c, r2, 1.0);
    bool swap = (quadrant & 1) != 0;
    uint64_t sin_bits = k_f64_bits(k_select_f64(swap, c, s)) ^ ((quadrant & 2) << 62);
    uint64_t cos_bits = k_f64_bits(k_select_f64(swap, s, c)) ^ (((quadrant + 1) & 2) << 62);
    *sin_out = (float)k_f64_from_bits(sin_bits);
    *cos_out = (float)k_f64_from_bits(cos_bits);
}

/* ---- f64 exp and log: for tables made at load and for the logarithm of a sum ----------------- */

K_MATH_FN double k_inf(void)
{
    return k_f64_from_bits(0x7ff0000000000000u);
}

/* Returns e^x. Largest observed error: 0.87 ulp. x <= -708 gives 0, x >= 709.75 gives +inf. Taylor polynomial through
 * r^13. */
K_MATH_FN double k_exp64(double x)
{
    static const double inverse_factorial[12] = {
        /* 1/13! ... 1/2! */
        0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22,
        0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10,
        0x1.1111111111111p-7,  0x1.5555555555555p-5,  0x1.5555555555555p-3,  0x1p-1,
    };
    if (x != x)
        return x;
    if (x <= -708.0)
        return 0.0;
    if (x >= 709.75)
        return k_inf();
    double shifted = x * 0x1.71547652b82fep+0 + 0x1.8p+52;
    double n = shifted - 0x1.8p+52;
    double r = K_FMA(n, -0x1.62e42fefa39efp-1, x);
    r = K_FMA(n, -0x1.abc9e3b39803fp-56, r);
    double p = inverse_factorial[0];
    for (int i = 1; i < 12; i++)
        p = K_FMA(p, r, inverse_factorial[i]);
    p = K_FMA(p, r, 1.0);
    p = K_FMA(p, r, 1.0);
    return k_f64_from_bits(k_f64_bits(p) + (k_f64_bits(shifted) << 52));
}

/* Returns ln x. Largest observed error: 1.97 ulp, close to x = 1. 0 gives -inf, a negative x or NaN gives a NaN, +inf
 * gives +inf. x = 2^e m with m in [sqrt(1/2), sqrt 2), s = (m - 1) / (m + 1), ln m = 2 s + s³ (2/3 + 2/5 s² + ... +
 * 2/21 s^18). */
K_MATH_FN double k_log64(double x)
{
    static const double odd[10] = {
        /* 2/21 ... 2/3 */
        0x1.8618618618618p-4, 0x1.af286bca1af28p-4, 0x1.e1e1e1e1e1e1ep-4, 0x1.1111111111111p-3, 0x1.3b13b13b13b14p-3,
        0x1.745d1745d1746p-3, 0x1.c71c71c71c71cp-3, 0x1.2492492492492p-2, 0x1.999999999999ap-2, 0x1.5555555555555p-1,
    };
    if (!(x > 0.0))
        return x == 0.0 ? -k_inf() : k_inf() - k_inf();
    if (x == k_inf())
        return x;
    double exponent = 0.0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        exponent = -54.0;
    }
    /* The constant is sqrt(1/2). The top bits of the difference give e. */
    uint64_t steps = (k_f64_bits(x) - 0x3fe6a09e667f3bcdu) >> 52;
    int32_t e = (int32_t)(steps & 0xfffu) - ((steps & 0x800u) ? 0x1000 : 0);
    double m = k_f64_from_bits(k_f64_bits(x) - ((uint64_t)(int64_t)e << 52));
    exponent += (double)e;
    double f = m - 1.0;
    double s = f / (m + 1.0);
    double s2 = s * s;
    double p = odd[0];
    for (int i = 1; i < 10; i++)
        p = K_FMA(p, s2, odd[i]);
    double tail = K_FMA(exponent, 0x1.abc9e3b39803fp-56, s * s2 * p);
    return K_FMA(exponent, 0x1.62e42fefa39efp-1, s + s + tail);
}

/* ---- lane sums ------------------------------------------------------------------------------- */

#define K_LANES 16

/* Folds 16 partial sums by halves: 8, 4, 2, 1 apart. */
K_MATH_FN float k_lane_fold(const float lanes[K_LANES])
{
    float s[8];
    for (int j = 0; j < 8; j++)
        s[j] = lanes[j] + lanes[j + 8];
    for (int j = 0; j < 4; j++)
        s[j] = s[j] + s[j + 4];
    for (int j = 0; j < 2; j++)
        s[j] = s[j] + s[j + 2];
    return s[0] + s[1];
}

/* ---- Philox4x32-10 --------------------------------------------------------------------------- */

/* Counter-based random bits: out depends only on counter and key. */
K_MATH_FN void k_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0;
        uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Rounds activations to int8 (docs/internals/numerics.md §19) in a group whose largest |x| is `most`: u = rint(x ·
 * factor), and u · scale restores x. If `most` is too small, factor and scale are 0. If `most` is infinite or NaN, u is
 * 0. */
#define K_ROUND_LEAST 0x1p-120f /* 127 over a smaller number would not be finite */
K_MATH_FN float k_round_factor(float most)
{
    return most >= K_ROUND_LEAST && most <= 3.402823466e+38f ? 127.0f / most : 0.0f;
}

K_MATH_FN float k_round_scale(float most)
{
    return most < K_ROUND_LEAST ? 0.0f : most / 127.0f;
}

K_MATH_FN int8_t k_round_int8(float x, float factor)
{
    float v = x * factor;
    v = v > 127.0f ? 127.0f : v;
    v = v < -127.0f ? -127.0f : v;
    v = (v + 0x1.8p+23f) - 0x1.8p+23f; /* to an integer, ties to even */
    return v == v ? (int8_t)v : (int8_t)0;
}

/* Returns the contribution of element `i` of an array to its checksum. It differs for each float at each position. The
 * checksum detects faults, not forgery. */
K_MATH_FN uint64_t k_checksum_term(float x, uint32_t i)
{
    const uint64_t z = ((uint64_t)k_f32_bits(x) << 32 | i) * UINT64_C(0x9e3779b97f4a7c15);
    return z ^ z >> 32;
}

/* Scales a head's vector for an 8-bit KV cache (docs/internals/numerics.md §9), whose largest |x| is `most`. u is x ·
 * factor, rounded to the kind, and a reader gets u · scale. `top` is the kind's largest number. An infinite or NaN
 * `most` makes the whole vector NaN. */
#define K_KV_LEAST 0x1p-110f /* 57344 over a smaller number would not be finite */
#define K_KV_TOP_INT8 127.0f
#define K_KV_TOP_E4M3 448.0f
#define K_KV_TOP_E5M2 57344.0f
K_MATH_FN float k_kv_factor(float most, float top)
{
    return most >= K_KV_LEAST && most <= 3.402823466e+38f ? top / most : 0.0f;
}

K_MATH_FN float k_kv_scale(float most, float top)
{
    return most < K_KV_LEAST ? 0.0f : most <= 3.402823466e+38f ? most / top : k_f32_from_bits(0x7fc00000u);
}

/* Returns x · factor, limited to an FP8 kind's range as in k_round_int8(); +0 if the factor is 0. */
K_MATH_FN float k_kv_bounded(float x, float factor, float top)
{
    float v = x * factor;
    v = v > top ? top : v;
    v = v < -top ? -top : v;
    return factor > 0.0f ? v : 0.0f;
}

#endif
