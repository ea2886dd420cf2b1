/* Reads and checks quantization_config of config.json and translates it into one vocabulary. The tensors themselves
 * decide which matrices are quantized (engine/model/quantization/quantized.h). Pure; any thread. */
#ifndef QUIRE_ENGINE_QUANTIZATION_H
#define QUIRE_ENGINE_QUANTIZATION_H

#include "base/status.h"
#include "kernels/format.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum quantization_layout {
    QUANTIZATION_NONE,
    QUANTIZATION_GPTQ, /* qweight [K / 8, N] of words along K, scales and qzeros by groups of K */
    QUANTIZATION_AWQ, /* qweight [K, N / 8] of words along N, in AWQ's order */
    QUANTIZATION_PACKED, /* compressed-tensors: weight_packed [N, K / 8] */
    QUANTIZATION_ELEMENTS, /* weight [N, K] of I8 or FP8, and weight_scale or weight_scale_inv */
    QUANTIZATION_MADE, /* a plain checkpoint, quantized when it is loaded */
    QUANTIZATION_MXFP4, /* gpt-oss's experts: blocks and scales of all of a layer */
};

/* The activations for which the file was made. */
enum quantization_inputs { INPUTS_FLOAT, INPUTS_DYNAMIC /* int8, a scale a token */, INPUTS_STATIC /* input_scale */ };

/* The formats that --quantization produces from plain weights. */
struct quantization_made {
    const char *name;
    const char *identity; /* its weight_format in engine/identity.h */
    uint8_t code; /* in recordings, never used again for another; not 0 */
    struct k_format layers; /* of the layers' matrices */
    struct k_format head; /* format of the output head; bits 0: unchanged */
};

struct quantization {
    const char *method; /* quant_method, or the method of --quantization; static; NULL if the weights are plain */
    const struct quantization_made *made; /* of MADE: static */
    enum quantization_layout layout;
    enum quantization_inputs inputs;
    uint32_t bits; /* of an element */
    uint32_t group; /* columns that share a scale; 0: the row */
    uint32_t block_rows; /* rows that share a scale in FP8 blocks; 0: rows do not share scales */
    bool is_float; /* layout ELEMENTS: FP8 if true, otherwise I8 */
    const char *floats; /* FP8: tensor dtypes that match the config; static; NULL accepts any */
    bool symmetric; /* there are no zero points, or all of them say the middle */
    bool zero_is_less; /* GPTQ's first version: zero points are stored less 1 */
    bool in_order; /* groups: columns are ordered by g_idx */
    bool scales_cache; /* there are scales for a KV cache, which are not used: the cache has its own */
};

/* Reads quantization_config or compression_config of config.json. Without either the layout is NONE. Returns
 * QUIRE_INVALID or QUIRE_UNSUPPORTED with "config.json: quantization_config: field: why". */
int quantization_read(const json_t *config, struct quantization *out, struct quire_error *err);

/* "gptq", "awq", "compressed-tensors", "fp8", "none"; for the layout MADE the option's name, such as "int8". */
const char *quantization_name(const struct quantization *q);

/* --quantization `name` of a checkpoint whose quantization is `has`: it names that, in vLLM's words too, or makes *q one that is
 * made when weights are loaded; else an error names both. */
int quantization_choose(const char *name, const char *has, struct quantization *q, struct quire_error *err);

/* NULL: none has this code. */
const struct quantization_made *quantization_made_of(uint8_t code);

#endif
