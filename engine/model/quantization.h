/* What config.json says of quantized weights (quantization_config), checked and in one vocabulary. Which matrices are
 * quantized the tensors themselves say (engine/model/quantized.h). Pure; any thread. */
#ifndef QUIRE_ENGINE_QUANTIZATION_H
#define QUIRE_ENGINE_QUANTIZATION_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum quantization_layout {
    QUANTIZATION_NONE,
    QUANTIZATION_GPTQ, /* qweight [K / 8, N] of words along K, scales and qzeros by groups of K */
    QUANTIZATION_AWQ, /* qweight [K, N / 8] of words along N, in AWQ's order */
    QUANTIZATION_PACKED, /* compressed-tensors: weight_packed [N, K / 8] */
    QUANTIZATION_ELEMENTS, /* weight [N, K] of I8 or FP8, and weight_scale or weight_scale_inv */
    QUANTIZATION_MADE, /* of a plain checkpoint, when it is loaded */
};

/* Of activations, as the file was made for. */
enum quantization_inputs { INPUTS_FLOAT, INPUTS_DYNAMIC /* int8, a scale a token */, INPUTS_STATIC /* input_scale */ };

/* What --quantization makes of plain weights. */
struct quantization_made {
    const char *name;
    const char *identity; /* its weight_format in engine/identity.h */
    uint8_t code; /* in recordings, never used again for another; not 0 */
    struct k_format layers; /* of the layers' matrices */
    struct k_format head; /* of the matrix that makes logits; bits 0: as it is stored */
};

struct quantization {
    const char *method; /* quant_method, or what --quantization made: static; NULL: there is none */
    const struct quantization_made *made; /* of MADE: static */
    enum quantization_layout layout;
    enum quantization_inputs inputs;
    uint32_t bits; /* of an element */
    uint32_t group; /* columns that share a scale; 0: the row */
    uint32_t block_rows; /* rows that do, of FP8's blocks; 0: none */
    bool is_float; /* of ELEMENTS: FP8, else I8 */
    const char *floats; /* of FP8, tensors' dtypes that fit what the file says: static; NULL: any */
    bool symmetric; /* there are no zero points, or all of them say the middle */
    bool zero_is_less; /* GPTQ's first version: zero points are stored less 1 */
    bool in_order; /* of groups: columns lie as g_idx says */
    bool scales_cache; /* there are scales for a KV cache, which are not used: the cache has its own */
};

/* Reads config.json's quantization_config, or compression_config; without one the layout is NONE. QUIRE_INVALID or
 * QUIRE_UNSUPPORTED with "config.json: quantization_config: field: why". */
int quantization_read(const json_t *config, struct quantization *out, struct quire_error *err);

/* "gptq", "awq", "compressed-tensors", "fp8", "none"; of MADE "int8" and the like. */
const char *quantization_name(const struct quantization *q);

/* --quantization `name` of a checkpoint whose quantization is `has`: it names that, in vLLM's words too, or makes *q one that is
 * made when weights are loaded; else an error names both. */
int quantization_choose(const char *name, const char *has, struct quantization *q, struct quire_error *err);

/* NULL: none has this code. */
const struct quantization_made *quantization_made_of(uint8_t code);

#endif
