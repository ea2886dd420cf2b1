/* Reads quantized rows (docs/internals/numerics.md §19): w_k = scale · q_k + least, where a group of columns shares
 * scale and least. This is the reference reader of every such format: the oracle computes with it, faster kernels are
 * compared with it, and the loader checks files with it. Owns nothing. Any thread. */
#ifndef QUIRE_KERNELS_QUANT_H
#define QUIRE_KERNELS_QUANT_H

#include "kernels/format.h"
#include "kernels/math/codes.h"
#include "kernels/weight.h"

/* The layout of one kind of GGUF block. */
struct k_blocks {
    const char *name; /* GGUF's name, "Q4_K" */
    uint32_t columns, bytes; /* per block */
    uint32_t group; /* columns that share a scale */
    uint32_t bits; /* per element, for people; without scales */
    bool has_least; /* otherwise every least is 0 and its term is omitted */
};
const struct k_blocks *k_blocks_of(enum k_packing packing); /* NULL if the packing has no blocks */

bool k_format_has_least(struct k_format format);
/* Whether the elements are codes that a table gives a meaning; then sets the table. */
bool k_format_codes(struct k_format format, struct k_codes *codes);

/* The group of column k: its first column, and the column after its last. */
static inline uint32_t k_group_begin(struct k_format format, uint32_t k)
{
    return format.group ? k - k % format.group : 0;
}
static inline uint32_t k_group_end(struct k_format format, uint32_t n_cols, uint32_t k)
{
    uint32_t end = format.group ? k - k % format.group + format.group : n_cols;
    return end < n_cols ? end : n_cols;
}

/* Returns the row of `scales` of a row of planes. */
static inline uint64_t k_scale_row(const struct k_weight_view *w, uint32_t row)
{
    return (uint64_t)(w->scale_rows > 1 ? row / w->scale_rows : row) * (w->scale_step ? w->scale_step : 1);
}

#define K_QUANT_READ 256u /* columns per read, at most */

/* Reads the q of columns [begin, end) of a row: at most K_QUANT_READ columns, all in one group. Exact. */
void k_quant_read(const struct k_weight_view *w, uint32_t row, uint32_t begin, uint32_t end, float *q);

/* Returns the scale and the least of the group that contains this column. */
void k_quant_scale(const struct k_weight_view *w, uint32_t row, uint32_t column, float *scale, float *least);

/* Returns how many activation columns share a scale in the int8 form: 32, or 0 (all columns of a token) if a row of
 * weights has one scale. */
static inline uint32_t k_quant_x_group(struct k_format format)
{
    return format.group ? 32 : 0;
}

#endif
