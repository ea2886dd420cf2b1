/* How a safetensors file stores a quantized matrix: the tensors of each layout, and their bytes. Pure functions; any
 * thread. engine/model/quantization/ reads the same layouts.
 *
 *   PACKED  compressed-tensors' pack-quantized: weight_packed [N, K / p] I32, weight_scale [N, groups],
 *           weight_zero_point [N / p, groups] I32 (asymmetric), weight_shape [2] I64; p = 32 / bits elements a word
 *   INTS    compressed-tensors' int-quantized: weight [N, K] I8, weight_scale [N, groups], weight_zero_point [N,
 *           groups] I8
 *   FP8     weight [N, K] F8_E4M3 or F8_E5M2, weight_scale [1]
 *   MXFP4   compressed-tensors' mxfp4-pack-quantized: weight_packed [N, K / 2] U8, two elements a byte, the low half
 *           first; weight_scale [N, K / 32] U8, the exponent + 127
 *   GPTQ    qweight [K / p, N] I32, qzeros [groups, N / p] I32, scales [groups, N] F16, g_idx [K] I32; zero points
 *           minus 1 if symmetric (gptq), otherwise as they are (gptq_v2)
 *   AWQ     qweight [K, N / 8] I32, qzeros [groups, N / 8] I32, scales [groups, N] F16; in words the columns 0, 2, 4,
 *           6, 1, 3, 5, 7 from the low bits on */
#ifndef QUIRE_TOOLS_QUANTIZE_LAYOUTS_H
#define QUIRE_TOOLS_QUANTIZE_LAYOUTS_H

#include "tools/quantize/methods/integers.h"
#include "tools/quantize/writer/tensor_list.h"

#include <stdbool.h>
#include <stdint.h>

enum quantizer_layout { LAYOUT_PACKED, LAYOUT_INTS, LAYOUT_FP8, LAYOUT_MXFP4, LAYOUT_GPTQ, LAYOUT_AWQ, LAYOUT_GGUF };

#define LAYOUT_MAX_TENSORS 4

/* The matrix [n_rows, n_cols] in a layout. `how->scale` is the scales' dtype. */
struct quantizer_matrix_shape {
    enum quantizer_layout layout;
    enum k_dtype fp8; /* of LAYOUT_FP8 */
    const struct quantizer_integers *how;
    uint32_t n_rows, n_cols;
};

/* Returns whether LAYOUT_GPTQ is gptq_v2. In gptq a zero point of 0 is stored as a minus 1 modulo 2^bits, which some readers
 * add 1 to with a carry; gptqmodel rejects gptq with zero points. All symmetric zero points are 2^(bits - 1). */
static inline bool quantizer_gptq_is_v2(const struct quantizer_integers *how)
{
    return !how->symmetric;
}

/* Appends the matrix's tensors. `name` has no ".weight". */
void quantizer_layout_add(const struct quantizer_matrix_shape *m, const char *name, struct tensor_list *list);

/* Appends the two tensors of n_experts such matrices in MXFP4 as gpt-oss has them: NAME_blocks [n_experts, N, K / 32, 16] and
 * NAME_scales [n_experts, N, K / 32]. */
void quantizer_layout_add_experts(const struct quantizer_matrix_shape *m, uint32_t n_experts, const char *name,
                                  struct tensor_list *list);

/* NULL, or why a matrix of this shape does not fit the layout: static. */
const char *quantizer_layout_refuses(const struct quantizer_matrix_shape *m);

/* The bytes of the matrix's tensor `item`, as quantizer_layout_add() appended it, or of one expert. LAYOUT_FP8 needs only codes and
 * scales[0]. out: [item->n_bytes] */
void quantizer_layout_write(const struct quantizer_matrix_shape *m, const struct quantizer_codes *codes,
                            const struct tensor_list_item *item, uint8_t *out);

/* The reverse, of LAYOUT_GPTQ: reads the tensor `item` into codes, whose arrays are all set. */
void quantizer_layout_read(const struct quantizer_matrix_shape *m, const struct tensor_list_item *item,
                           const uint8_t *bytes, struct quantizer_codes *codes);

#endif
