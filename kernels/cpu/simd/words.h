/* Vectors of floats and of 32-bit words in this translation unit's instruction set, and the split of a number into two
 * bf16 terms (docs/internals/numerics.md §6). Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_SIMD_WORDS_H
#define QUIRE_KERNELS_CPU_SIMD_WORDS_H

#include <stdint.h>

#if defined(__AVX512F__)
#include "kernels/cpu/simd/words_avx512.h"
#else
#include "kernels/cpu/simd/words_avx2.h"
#endif

/* A denormal becomes a zero with its sign. */
CPU_INLINE words words_flush(words v)
{
    words magnitude = words_and(v, words_splat(0x7fffffffu));
    return words_select_greater(words_splat(0x00800000u), magnitude, words_and(v, words_splat(0x80000000u)), v);
}
CPU_INLINE vec vec_flush(vec v)
{
    return vec_of(words_flush(words_of(v)));
}

/* Returns one of the two numbers in words of bf16 pairs. */
/* clang-format off */
CPU_INLINE vec vec_even(words v) { return vec_of(words_low(v)); }
CPU_INLINE vec vec_odd(words v) { return vec_of(words_and(v, words_splat(0xffff0000u))); }
/* clang-format on */

/* ---- two bf16 terms -------------------------------------------------------------------------- */

/* Returns bf16(x), in the high half of each word. */
CPU_INLINE words words_round_bf16(words x)
{
    words high = words_splat(0xffff0000u);
    words tie = words_and(words_high(x), words_splat(1));
    words rounded = words_and(words_add(words_add(x, words_splat(0x7fff)), tie), high);
    words quiet = words_or(words_and(x, high), words_splat(0x00400000u));
    words magnitude = words_and(x, words_splat(0x7fffffffu));
    return words_select_greater(magnitude, words_splat(0x7f800000u), quiet, rounded);
}

/* Splits x into factors of a product. Denormals are zeros. */
CPU_INLINE void vec_split(vec x, words *high, words *low)
{
    words h = words_round_bf16(words_of(x));
    *high = words_flush(h);
    *low = words_flush(words_round_bf16(words_of(vec_sub(x, vec_of(h)))));
}

#endif
