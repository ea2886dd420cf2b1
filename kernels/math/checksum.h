/* The checksum that detects faults in arrays which must be equal on all ranks.
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_CHECKSUM_H
#define QUIRE_KERNELS_MATH_CHECKSUM_H

#include "kernels/math/bits.h"

#include <stdint.h>

/* Returns the contribution of element `i` of an array to its checksum. It differs for each float at each position. The
 * checksum detects faults, not forgery. */
K_MATH_FN uint64_t k_checksum_term(float x, uint32_t i)
{
    const uint64_t z = ((uint64_t)k_f32_bits(x) << 32 | i) * UINT64_C(0x9e3779b97f4a7c15);
    return z ^ z >> 32;
}

#endif
