#include "tools/quantize/writer/config.h"

#include <stdlib.h>
#include <string.h>

static json_t *weights_json(const struct quantizer_config *c)
{
    const bool is_fp8 = c->layout == LAYOUT_FP8, has_groups = !is_fp8 && c->how->group > 0;
    json_t *w = json_pack("{s:i, s:s, s:b, s:b, s:s, s:s}", "num_bits", is_fp8 ? 8 : (int)c->how->bits, "type",
                          is_fp8 ? "float" : "int", "symmetric", is_fp8 || c->how->symmetric, "dynamic", false,
                          "strategy",
                          is_fp8       ? "tensor"
                          : has_groups ? "group"
                                       : "channel",
                          "observer", "minmax");
    if (has_groups)
        json_object_set_new(w, "group_size", json_integer(c->how->group));
    return w;
}

static json_t *mxfp4_json(const struct quantizer_config *c)
{
    static const char format[] = "mxfp4-pack-quantized";
    if (c->experts_only)
        return json_pack("{s:s, s:O}", "quant_method", "mxfp4", "modules_to_not_convert", c->ignored);
    return json_pack("{s:s, s:s, s:s, s:{s:{s:[s], s:{s:i, s:s, s:b, s:b, s:s, s:i, s:s, s:s}, s:s}}, s:O}",
                     "quant_method", "compressed-tensors", "format", format, "quantization_status", "compressed",
                     "config_groups", "group_0", "targets", "Linear", "weights", "num_bits", 4, "type", "float",
                     "symmetric", true, "dynamic", false, "strategy", "group", "group_size", (int)c->how->group,
                     "scale_dtype", "torch.uint8", "zp_dtype", "torch.uint8", "format", format, "ignore", c->ignored);
}

static json_t *compressed_json(const struct quantizer_config *c)
{
    const char *format = c->layout == LAYOUT_PACKED ? "pack-quantized"
                         : c->layout == LAYOUT_INTS ? "int-quantized"
                                                    : "float-quantized";
    json_t *group = json_pack("{s:[s], s:o, s:s}", "targets", "Linear", "weights", weights_json(c), "format", format);
    if (group && c->int8_inputs)
        json_object_set_new(group, "input_activations",
                            json_pack("{s:i, s:s, s:b, s:b, s:s}", "num_bits", 8, "type", "int", "symmetric", true,
                                      "dynamic", true, "strategy", "token"));
    return json_pack("{s:s, s:s, s:s, s:{s:o}, s:O}", "quant_method", "compressed-tensors", "format", format,
                     "quantization_status", "compressed", "config_groups", "group_0", group, "ignore", c->ignored);
}

json_t *quantizer_config_json(const struct quantizer_config *c)
{
    const int group = c->how->group ? (int)c->how->group : -1;
    switch (c->layout) {
    case LAYOUT_GPTQ:
        return json_pack("{s:s, s:i, s:i, s:b, s:b, s:f, s:b, s:s, s:b}", "quant_method", "gptq", "bits",
                         (int)c->how->bits, "group_size", group, "desc_act", c->desc_act, "sym", c->how->symmetric,
                         "damp_percent", c->damp, "true_sequential", false, "checkpoint_format",
                         quantizer_gptq_is_v2(c->how) ? "gptq_v2" : "gptq", "lm_head", false);
    case LAYOUT_AWQ:
        return json_pack("{s:s, s:i, s:i, s:b, s:s, s:n}", "quant_method", "awq", "bits", 4, "group_size", group,
                         "zero_point", true, "version", "gemm", "modules_to_not_convert");
    case LAYOUT_FP8:
        if (c->fp8 == K_E5M2) /* compressed-tensors has e4m3 alone */
            return json_pack("{s:s, s:s, s:s, s:O}", "quant_method", "fp8", "fmt", "e5m2", "activation_scheme",
                             "dynamic", "modules_to_not_convert", c->ignored);
        return compressed_json(c);
    case LAYOUT_MXFP4: return mxfp4_json(c);
    default: return compressed_json(c);
    }
}

int quantizer_config_text(const struct quantizer_config *c, const char *text, size_t n, struct buffer *out,
                          struct quire_error *err)
{
    json_t *json = quantizer_config_json(c);
    char *made = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    const char *open = memchr(text, '{', n);
    if (!made || !open) {
        free(made);
        return made ? quire_fail(err, QUIRE_INVALID, "config.json: must be an object")
                    : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    const size_t before = (size_t)(open - text) + 1;
    static const char key[] = "\n  \"quantization_config\": ";
    buffer_append(out, text, before);
    buffer_append(out, key, sizeof key - 1);
    buffer_append(out, made, strlen(made));
    buffer_append(out, ",", 1);
    free(made);
    return buffer_append(out, text + before, n - before) == QUIRE_OK
               ? QUIRE_OK
               : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}
