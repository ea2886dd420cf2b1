/* The lane form of many tokens in AVX2 (gemm_lane_rows.c): from how many on, and the memory that it needs. */
#ifndef QUIRE_KERNELS_CPU_LANE_ROWS_H
#define QUIRE_KERNELS_CPU_LANE_ROWS_H

#include <stdint.h>

/* Fewer do not pay for laying weights out: 20 to 48 took 0.9 to 1.3 of gemm_lane.c's time. */
#define CPU_LANE_ROWS_TOKENS 64u
#define CPU_LANE_ROWS 16u /* of a panel */

/* A thread's panel, in the workspace behind the activations. Planned on AVX-512, too: plans know no instruction sets. */
static inline uint64_t cpu_lane_rows_floats(uint32_t n_cols)
{
    return ((uint64_t)n_cols + 15) / 16 * 16 * CPU_LANE_ROWS;
}

#endif
