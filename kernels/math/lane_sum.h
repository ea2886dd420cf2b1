/* The 16 lanes of a sum (docs/internals/numerics.md §4).
 * kernels/math/bits.h has the rules: static inline, the same bits everywhere, no branch, pure, any thread. */
#ifndef QUIRE_KERNELS_MATH_LANE_SUM_H
#define QUIRE_KERNELS_MATH_LANE_SUM_H

#include "kernels/math/bits.h"

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

#endif
