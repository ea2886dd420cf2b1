/* The division of a GEMM's columns (docs/internals/numerics.md §5): at most 8 segments of whole units. Each is summed
 * separately, and one tree folds the sums. So ranks, blocks or threads can own whole subtrees without changing any bit.
 * Compiled as C and as CUDA. Pure; any thread. */
#ifndef QUIRE_KERNELS_SEGMENTS_H
#define QUIRE_KERNELS_SEGMENTS_H

#include <stdint.h>

#define K_SEGMENTS 8u

#ifdef __CUDACC__
#define K_SEGMENT_FN static inline __host__ __device__
#else
#define K_SEGMENT_FN static inline
#endif

/* Returns the first column of segment i of a GEMM with `unit` columns per unit, or n_cols for i = K_SEGMENTS. Segment i
 * is columns [begin(i), begin(i + 1)) and may be empty. unit 0: segment 0 has all columns. */
K_SEGMENT_FN uint32_t k_segment_begin(uint32_t n_cols, uint32_t unit, uint32_t i)
{
    if (unit == 0)
        return i == 0 ? 0 : n_cols;
    uint64_t n_units = ((uint64_t)n_cols + unit - 1) / unit, column = i * n_units / K_SEGMENTS * unit;
    return column < n_cols ? (uint32_t)column : n_cols;
}

/* The same within a share: columns [first, first + n_cols) of n_whole, counted from the share's first column. n_whole
 * 0: not a share. */
K_SEGMENT_FN uint32_t k_segment_begin_in(uint32_t n_cols, uint32_t n_whole, uint32_t first, uint32_t unit, uint32_t i)
{
    if (n_whole == 0)
        return k_segment_begin(n_cols, unit, i);
    const uint32_t begin = k_segment_begin(n_whole, unit, i);
    return begin <= first ? 0 : begin - first < n_cols ? begin - first : n_cols;
}

/* Returns the columns per unit of an MLP's down projection: the largest of 256, 128, 64, 32 and 16 that fits 8
 * times. */
K_SEGMENT_FN uint32_t k_segment_unit(uint32_t n_cols)
{
    uint32_t unit = 256;
    while (unit > 16 && 8 * unit > n_cols)
        unit /= 2;
    return unit;
}

#endif
