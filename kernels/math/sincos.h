/* Sine and cosine, for RoPE. Angles are in radians.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_SINCOS_H
#define QUIRE_KERNELS_MATH_SINCOS_H

#include "kernels/math/bits.h"

#include <stdbool.h>
#include <stdint.h>

/* Both results are rounded to f32 once, from f64 values with a relative error below 2^-44. The largest error is 0.50001
 * ulp. For |x| <= 2^26; NaN for NaN and ±inf. The polynomials are Taylor's, through r^13 and r^14. */
K_MATH_FN void k_sincos_wide(double wide, float *sin_out, float *cos_out)
{
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

K_MATH_FN void k_sincos(float x, float *sin_out, float *cos_out)
{
    k_sincos_wide((double)x, sin_out, cos_out);
}

#endif
