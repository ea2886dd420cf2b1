/* The numbers that 4-bit codes stand for, in the formats of docs/internals/numerics.md §19 that look them up.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_CODES_H
#define QUIRE_KERNELS_MATH_CODES_H

#include "kernels/math/bits.h"

/* 16 numbers of int8, four in a word, the first in its lowest byte. */
struct k_codes {
    uint32_t words[4];
};

/* Twice the numbers of e2m1: 0, 1, 2, 3, 4, 6, 8, 12, then 0 and the negative ones. */
K_MATH_FN struct k_codes k_codes_e2m1(void)
{
    struct k_codes codes = {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
    return codes;
}

/* IQ4_NL and IQ4_XS: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113. */
K_MATH_FN struct k_codes k_codes_iq4(void)
{
    struct k_codes codes = {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
    return codes;
}

/* A code is its number: 0 to 15. */
K_MATH_FN struct k_codes k_codes_plain(void)
{
    struct k_codes codes = {{0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu}};
    return codes;
}

K_MATH_FN int k_code_number(struct k_codes codes, uint32_t code)
{
    return (int8_t)(codes.words[code / 4] >> 8 * (code % 4));
}

#endif
