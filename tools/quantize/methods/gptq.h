/* GPTQ (Frantar et al. 2022): columns are rounded one after the other, and the error of each is compensated in the
 * columns that are not rounded yet, by the inverse of H = Σ x x^T over the calibration's activations. Pure functions;
 * any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_GPTQ_H
#define QUIRE_TOOLS_QUANTIZE_GPTQ_H

#include "base/status.h"
#include "tools/quantize/methods/integers.h"

#include <stdbool.h>
#include <stdint.h>

/* Matrices with the same input share this. The caller owns the arrays. */
struct quantizer_gptq {
    struct quantizer_integers how;
    uint32_t n_cols;
    float *inverse;   /* [n_cols, n_cols]: u of dense_inverse_factor(), in the order of rounding */
    uint32_t *order;  /* [n_cols]: the column that is rounded i-th */
    uint32_t *groups; /* [n_cols]: the group of each column */
    /* A group's grid spans part of its range, from all of it down to half: the part whose compensated error is least.
     * False: all of it, as published. */
    bool clips;
};

/* Orders the columns (by falling activation if desc_act), adds damp times the mean diagonal to the diagonal, and factors
 * the Hessian. hessian: [n_cols, n_cols], symmetric; undefined afterwards. g->inverse is filled from it. A column without
 * activations gets the diagonal 1: it is rounded alone. The bits do not depend on n_threads. */
int quantizer_gptq_prepare(struct quantizer_gptq *g, float *hessian, bool desc_act, double damp, uint32_t n_threads,
                           struct quire_error *err);

#define QUANTIZER_GPTQ_ROWS 64u
/* Floats of scratch that a call of quantizer_gptq_rows() needs. */
static inline uint64_t quantizer_gptq_scratch(uint32_t n_cols)
{
    return ((uint64_t)n_cols + 128) * QUANTIZER_GPTQ_ROWS;
}

/* Quantizes rows [first, last) of w. Rows do not depend on each other. */
void quantizer_gptq_rows(const struct quantizer_gptq *g, const float *w, uint32_t first, uint32_t last, float *scratch,
                         struct quantizer_codes *out);

#endif
