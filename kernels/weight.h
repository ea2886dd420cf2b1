/* The weight matrices that a backend reads: views of a mapped checkpoint, from which weight_create() of
 * kernels/backend.h makes weights. Owns nothing. Any thread. Rows are output features and columns are input features;
 * strides are in bytes. */
#ifndef QUIRE_KERNELS_WEIGHT_H
#define QUIRE_KERNELS_WEIGHT_H

#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

/* Part of a weight matrix in a mapped checkpoint. A shard is a view of fewer rows or columns of the same mapping. The
 * mapping must outlive the weight. A backend that computes on host memory uses it in place; other backends copy it
 * (weight_bytes of the planner). */
struct k_weight_view {
    const void *data; /* host memory, row 0, column 0 of the part; aligned at least to an element */
    struct k_format format;
    uint32_t n_rows; /* output features */
    uint32_t n_cols; /* input features */
    uint64_t row_stride_bytes;
    /* Only for K_PACKING_PLANES, otherwise NULL and 0. Row r's scales are row r / scale_rows · scale_step of `scales`. Each group
     * has one scale of type format.scale; the last group may be short. scale_rows 0 means 1. */
    const void *scales;
    uint32_t scale_rows;
    /* Rows of scales from one of them to the next, for rows that were taken out of others; 0 means 1. */
    uint32_t scale_step;
    /* One int8_t per row and group, which is subtracted from its integers. NULL subtracts 0, or 8 for 4-bit elements.
     * Stored elements of 4 bits are 0 to 15, of 8 bits -128 to 127. */
    const int8_t *zero_points;
    /* NULL, or [n_cols]: column i of the data multiplies column permutation[i] of the input. Only for a weight whose K
     * is one segment. */
    const uint32_t *permutation;
    float x_scale; /* in the int8 form, the scale of all activations that the file specifies; 0 if it specifies none */
    /* If the columns were cut out of a plain matrix: row 0, column 0 of that matrix, and its number of columns. The row
     * stride is the same. Forms read properties of whole rows there, such as the exponents of
     * docs/internals/numerics.md §17. Otherwise NULL. */
    const void *whole;
    uint32_t whole_cols;
    bool is_table; /* rows are only looked up; no GEMM uses this weight */
};

/* Returns a view of a matrix in a plain format. */
struct k_weight_view k_plain_view(const void *data, enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols,
                                  uint64_t row_stride_bytes);

#define K_WEIGHT_MAX_PARTS 4
struct k_weight; /* one or more parts stacked along rows (q, k and v; gate and up) */

#endif
