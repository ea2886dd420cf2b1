/* What a quantized row holds (docs/numerics.md §19): w_k = scale · q_k + least, the same scale and least for a group of
 * columns. The one reader of every such format: the oracle computes with it, who is faster is compared with it, and who loads
 * a file checks it by it. */
#ifndef QUIRE_KERNELS_QUANT_H
#define QUIRE_KERNELS_QUANT_H

#include "kernels/kernels.h"

/* One of GGUF's kinds of blocks. */
struct k_blocks {
    const char *name; /* as GGUF has it, "Q4_K" */
    uint32_t columns, bytes; /* of a block */
    uint32_t group; /* columns that share a scale */
    uint32_t bits; /* of an element, for people: scales not counted */
    bool has_least; /* else every least is 0, and no term */
};
const struct k_blocks *k_blocks_of(enum k_packing packing); /* NULL: it has none */

bool k_format_has_least(struct k_format format);

/* The group of columns that column k is in: its first column, and the one behind it. */
static inline uint32_t k_group_begin(struct k_format format, uint32_t k)
{
    return format.group ? k - k % format.group : 0;
}
static inline uint32_t k_group_end(struct k_format format, uint32_t n_cols, uint32_t k)
{
    uint32_t end = format.group ? k - k % format.group + format.group : n_cols;
    return end < n_cols ? end : n_cols;
}

#define K_QUANT_READ 256u /* columns that are read at a time, at most */

/* The q of columns [begin, end) of a row, at most K_QUANT_READ of them and all of one group; exact. */
void k_quant_read(const struct k_weight_view *w, uint32_t row, uint32_t begin, uint32_t end, float *q);

/* Scale and least of the group that has this column. */
void k_quant_scale(const struct k_weight_view *w, uint32_t row, uint32_t column, float *scale, float *least);

/* Columns of activations that share a scale in the form int8: 32, or 0 for all of a token where a row's weights have one
 * scale. */
static inline uint32_t k_quant_x_group(struct k_format format)
{
    return format.group ? 32 : 0;
}

#endif
