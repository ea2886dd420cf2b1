/* Integers with a scale and a zero point for each group of columns: w ≈ (code − zero) · scale. Pure functions; any
 * thread. Matrices are row-major in f32; rows are output features. Weights must be finite.
 *
 *   absmax      scale = max|w| / (2^(bits−1) − 1), zero = 2^(bits−1), code = rint(w / scale) + zero
 *   zero point  scale = (max − min) / (2^bits − 1), zero = rint(−min / scale), code = rint(w / scale) + zero
 *
 * min is at most 0 and max at least 0, so that 0 has a code. rint() rounds ties to even. The scale is rounded to the
 * dtype in which the file stores it before it divides, so that the codes fit the stored scale. */
#ifndef QUIRE_TOOLS_QUANTIZE_INTEGERS_H
#define QUIRE_TOOLS_QUANTIZE_INTEGERS_H

#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

struct quantizer_integers {
    uint32_t bits; /* 2 to 8 */
    uint32_t group; /* columns that share a scale; 0: the whole row. The last group may be short */
    bool symmetric; /* absmax; otherwise zero point */
    enum k_dtype scale; /* F32, F16 or BF16: as stored */
};

struct quantizer_grid {
    float scale; /* positive */
    int32_t zero;
};

/* A quantized matrix. The caller owns the arrays. */
struct quantizer_codes {
    uint32_t n_rows, n_cols, n_groups;
    uint8_t *codes; /* [n_rows, n_cols] */
    float *scales; /* [n_rows, n_groups], exact in the stored dtype */
    uint8_t *zeros; /* [n_rows, n_groups] */
    uint32_t *groups; /* NULL: column k has group k / size. Otherwise [n_cols]: the group of each column */
};

uint32_t quantizer_n_groups(const struct quantizer_integers *how, uint32_t n_cols);

/* x in the dtype, widened again. A positive x gives a positive number. */
float quantizer_stored(float x, enum k_dtype dtype);

/* The grid of n weights between least <= 0 and most >= 0. All zeros give the scale 1. */
struct quantizer_grid quantizer_grid_of(const struct quantizer_integers *how, float least, float most);
/* The same of n weights that follow each other. */
struct quantizer_grid quantizer_grid_of_row(const struct quantizer_integers *how, const float *w, uint32_t n);

uint8_t quantizer_code(const struct quantizer_integers *how, struct quantizer_grid grid, float w);
static inline float quantizer_value(struct quantizer_grid grid, uint8_t code)
{
    return (float)((int32_t)code - grid.zero) * grid.scale;
}

/* Rounds rows [first, last) of w to the nearest codes. */
void quantizer_round(const struct quantizer_integers *how, const float *w, uint32_t first, uint32_t last,
                     struct quantizer_codes *out);

#endif
