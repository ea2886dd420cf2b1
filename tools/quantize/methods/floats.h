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

/* MXFP4: groups of 32 weights with a scale 2^e, w ≈ code · scale with e2m1's numbers 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
 * compressed-tensors' scale: the power of two of max|w|, or the next one if max|w| is above 7/4 of it, divided by 4; so
 * max|w| is at most 7 scales. All zeros give 2^-127. The result is a power from 2^-127 to 2^127. */
#define QUANTIZER_MXFP4_GROUP 32u
float quantizer_mxfp4_scale(float most);

/* The exponent of max|w| in llama.cpp's blocks: floor(log2) − 2, as e8m0's byte. */
uint8_t quantizer_mxfp4_byte(float most);

/* Codes of n weights with one scale: the nearest number, ties to even codes. */
void quantizer_mxfp4_round(float scale, const float *w, uint32_t n, uint8_t *codes);

#endif
