/* e^x and ln x in f64: for tables made at load and for the logarithm of a sum. These branch.
 * Otherwise the rules of kernels/math/bits.h: static inline, the same bits everywhere, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_WIDE_H
#define QUIRE_KERNELS_MATH_WIDE_H

#include "kernels/math/bits.h"

#include <stdint.h>

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

#endif
