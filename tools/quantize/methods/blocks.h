/* GGUF's blocks: 32 columns with f16 scales (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1), and 256 columns with quantized scales
 * (Q4_K, Q5_K, Q6_K). Pure functions; any thread. The blocks of 32 have the bytes of llama.cpp's reference
 * quantizer. */
#ifndef QUIRE_TOOLS_QUANTIZE_BLOCKS_H
#define QUIRE_TOOLS_QUANTIZE_BLOCKS_H

#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether quantizer_blocks() can make this packing. */
bool quantizer_has_blocks(enum k_packing packing);

/* Quantizes a row of n finite weights, whole blocks. weights: NULL, or [n]: the importance of each column's error,
 * which the blocks of 256 minimise; all at least 0. Blocks of 32 ignore it. out: k_format_bytes() of the row. */
void quantizer_blocks(enum k_packing packing, const float *w, const float *weights, uint32_t n, uint8_t *out);

#endif
