/* The basis of kernels/math: the bits of floats, selection without branches, and the macros with which the same source
 * compiles as C and as CUDA. The folder holds the elementary functions and conversions of docs/internals/numerics.md
 * §3, the sum of §4 and the counter RNG of §13. All CPU paths produce the same bits.
 *
 * The functions are static inline and free of branches, so a compiler can vectorize a loop over them: a select is a
 * mask, never a jump. They compute no libm function: fma and sqrt are correctly rounded by definition, and rounding to
 * an integer is an addition of a large constant. They assume the default floating-point environment (round to nearest
 * even, denormals kept) and IEEE formats. Pure; any thread.
 *
 * In CUDA, too, fma, division and square root are correctly rounded (-prec-div, -prec-sqrt, no -ftz) and nothing is
 * contracted (-fmad=false). */
#ifndef QUIRE_KERNELS_MATH_BITS_H
#define QUIRE_KERNELS_MATH_BITS_H

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

#endif
