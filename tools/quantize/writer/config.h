/* config.json of a quantized checkpoint: the source's text with a quantization_config in front. Pure functions; any
 * thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_CONFIG_H
#define QUIRE_TOOLS_QUANTIZE_CONFIG_H

#include "base/buffer.h"
#include "tools/quantize/writer/layouts.h"

#include <jansson.h>
#include <stdbool.h>

struct quantizer_config {
    enum quantizer_layout layout;
    const char *method; /* the option's value */
    const struct quantizer_integers *how;
    enum k_dtype fp8; /* of LAYOUT_FP8 */
    bool desc_act, int8_inputs; /* inputs: int8 by token (W8A8) */
    bool experts_only; /* gpt-oss's MXFP4 */
    double damp;
    const json_t *ignored; /* array: modules that stay plain */
};

/* quantization_config in the words of the layout's loaders. NULL: out of memory. */
json_t *quantizer_config_json(const struct quantizer_config *c);

/* Appends config.json. text: the source's, an object. */
int quantizer_config_text(const struct quantizer_config *c, const char *text, size_t n, struct buffer *out,
                          struct quire_error *err);

#endif
