/* FP8 with one scale for a matrix: w ≈ code · scale, scale = max|w| / 448 (e4m3) or / 57344 (e5m2); the code is the
 * nearest FP8 number to w / scale, ties to even. Pure functions; any thread. Weights must be finite. */
#ifndef QUIRE_TOOLS_QUANTIZE_FLOATS_H
#define QUIRE_TOOLS_QUANTIZE_FLOATS_H

#include "kernels/format.h"

#include <stdint.h>

/* The scale of a matrix whose largest magnitude is `most`. Returns 1 if `most` is 0. kind: K_E4M3 or K_E5M2. */
float quantizer_fp8_scale(enum k_dtype kind, float most);

/* Rounds n weights. */
void quantizer_fp8_round(enum k_dtype kind, float scale, const float *w, uint64_t n, uint8_t *codes);

#endif
