/* GGUF's blocks of 256 columns, whose groups have quantized scales. Codes and scales minimise Σ weight · error², found
 * by a search over scales with least squares between. Pure functions; any thread. Private to blocks.c. */
#ifndef QUIRE_TOOLS_QUANTIZE_K_BLOCKS_H
#define QUIRE_TOOLS_QUANTIZE_K_BLOCKS_H

#include <stdint.h>

#define K_BLOCK_COLUMNS 256u

/* Q4_K and Q5_K: 8 groups, w ≈ d · scale · code − dmin · least. weights: NULL, all the same, or [256]. */
void k_block_ranged(const float *w, const float *weights, uint32_t bits, uint8_t *out);
/* Q6_K: 16 groups, w ≈ d · scale · (code − 32). */
void k_block_signed(const float *w, const float *weights, uint8_t *out);

#endif
