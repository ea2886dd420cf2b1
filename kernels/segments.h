/* Where the columns of a GEMM are parted (docs/numerics.md §5): at most 8 segments of whole units, each summed by itself, and
 * their sums folded by one tree. So ranks, blocks or threads may own whole subtrees without moving a bit. C and CUDA read
 * this file. */
#ifndef QUIRE_KERNELS_SEGMENTS_H
#define QUIRE_KERNELS_SEGMENTS_H

#include <stdint.h>

#define K_SEGMENTS 8u

#ifdef __CUDACC__
#define K_SEGMENT_FN static inline __host__ __device__
#else
#define K_SEGMENT_FN static inline
#endif

/* The first column of segment i of a GEMM with so many columns to a unit; of i = K_SEGMENTS, n_cols. Segment i is columns
 * [begin(i), begin(i + 1)), and may be empty. unit 0: segment 0 has all. */
K_SEGMENT_FN uint32_t k_segment_begin(uint32_t n_cols, uint32_t unit, uint32_t i)
{
    if (unit == 0)
        return i == 0 ? 0 : n_cols;
    uint64_t n_units = ((uint64_t)n_cols + unit - 1) / unit, column = i * n_units / K_SEGMENTS * unit;
    return column < n_cols ? (uint32_t)column : n_cols;
}

/* The same within a share of them: columns [first, first + n_cols) of n_whole, counted from its own first one. n_whole 0: it
 * is no share. */
K_SEGMENT_FN uint32_t k_segment_begin_in(uint32_t n_cols, uint32_t n_whole, uint32_t first, uint32_t unit, uint32_t i)
{
    if (n_whole == 0)
        return k_segment_begin(n_cols, unit, i);
    const uint32_t begin = k_segment_begin(n_whole, unit, i);
    return begin <= first ? 0 : begin - first < n_cols ? begin - first : n_cols;
}

/* Columns to a unit of an MLP's down projection: the largest of 256, 128, 64, 32 and 16 of which there are 8. */
K_SEGMENT_FN uint32_t k_segment_unit(uint32_t n_cols)
{
    uint32_t unit = 256;
    while (unit > 16 && 8 * unit > n_cols)
        unit /= 2;
    return unit;
}

#endif
