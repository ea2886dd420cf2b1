/* The lane form for many tokens in AVX2 (gemm_lane_rows.c): its minimum number of tokens and its memory. Pure; any
 * thread. */
#ifndef QUIRE_KERNELS_CPU_LANE_ROWS_H
#define QUIRE_KERNELS_CPU_LANE_ROWS_H

#include <stdint.h>

/* Repacking weights does not pay with fewer tokens: 20 to 48 tokens took 0.9 to 1.3 of gemm_lane.c's time. */
#define CPU_LANE_ROWS_TOKENS 64u
#define CPU_LANE_ROWS 16u /* rows that are repacked together */

/* Returns the floats of a thread's repacked rows, which follow the activations in the workspace. Planned on AVX-512
 * too, because plans do not depend on the instruction set. */
static inline uint64_t cpu_lane_rows_floats(uint32_t n_cols)
{
    return ((uint64_t)n_cols + 15) / 16 * 16 * CPU_LANE_ROWS;
}

#endif
