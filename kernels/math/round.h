/* The scales of activations rounded to int8 and of 8-bit KV caches.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_ROUND_H
#define QUIRE_KERNELS_MATH_ROUND_H

#include "kernels/math/bits.h"

#include <stdint.h>

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
