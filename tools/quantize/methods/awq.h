/* AWQ (Lin et al. 2023) and SmoothQuant (Xiao et al. 2022): columns of a matrix are multiplied by scales, and the
 * operation before it divides by them. AWQ searches scales by the error of the output over the calibration's activations,
 * Σ d H d^T for the error d of each row and H = Σ x x^T. gptq.h rounds the scaled weights. Pure functions; any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_AWQ_H
#define QUIRE_TOOLS_QUANTIZE_AWQ_H

#include "tools/quantize/methods/integers.h"

#include <stdint.h>

/* Rows that a search looks at. */
#define QUANTIZER_AWQ_ROWS 256u

/* Rows of matrices that see the same activations. */
struct quantizer_awq_part {
    const float *w; /* [n_rows, n_cols] */
    uint32_t n_rows; /* at most QUANTIZER_AWQ_ROWS */
    const float *hessian; /* [n_cols, n_cols] */
};

/* Matrices whose columns have the same scales: of one part, or of one for each expert. */
struct quantizer_awq {
    const struct quantizer_integers *how;
    uint32_t n_cols, n_parts;
    const struct quantizer_awq_part *parts;
};

/* Floats of scratch that quantizer_awq_scales() needs for parts of at most n_rows rows. */
static inline uint64_t quantizer_awq_scratch(uint32_t n_rows, uint32_t n_cols)
{
    return 3 * (uint64_t)n_rows * n_cols + n_cols;
}
/* Chooses scales [n_cols] by the error of all parts: powers 0, 0.05, ... 0.95 of the mean magnitude of each column's
 * activations. scratch: quantizer_awq_scratch() of the largest part */
void quantizer_awq_scales(const struct quantizer_awq *a, const double *magnitudes, float *scratch, float *scales);

/* SmoothQuant's scales: sqrt(max |x| / max |w|) of each column. most_w: [n_cols] */
void quantizer_smooth_scales(const float *most_x, const float *most_w, uint32_t n_cols, float *scales);

#endif
