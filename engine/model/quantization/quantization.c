#include "engine/model/quantization/quantization.h"

#include "base/encoding/json.h"
#include "engine/model/rope_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_GROUP (1u << 20)

static int refuse(const char *where, const char *field, const char *says, const char *supported,
                  struct quire_error *err)
{
    char text[48];
    return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: '%s' is not supported (%s)", where, field,
                      model_shown(says, text, sizeof text), supported);
}

/* group_size: −1 is the row. */
static int read_group(const json_t *object, const char *where, struct quantization *q, struct quire_error *err)
{
    int64_t group = -1;
    int status = quire_json_i64(object, where, "group_size", -1, MAX_GROUP, &group, err);
    if (status != QUIRE_OK)
        return status;
    if (group == 0 || (group > 0 && group % 16 != 0))
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: group_size: %lld is not supported (-1 and multiples of 16 are)",
                          where, (long long)group);
    q->group = group < 0 ? 0 : (uint32_t)group;
    return QUIRE_OK;
}

static int read_bits(const json_t *object, const char *where, const char *key, bool has_8, struct quantization *q,
                     struct quire_error *err)
{
    q->bits = 0;
    int status = quire_json_u32(object, where, key, 0, 64, &q->bits, err);
    if (status != QUIRE_OK || q->bits == 4 || (q->bits == 8 && has_8))
        return status;
    return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: %u is not supported (%s)", where, key, q->bits,
                      has_8 ? "4 and 8 are" : "4 is");
}

static int read_gptq(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    const char *format = "gptq";
    q->layout = QUANTIZATION_GPTQ;
    q->symmetric = true;
    int status = read_bits(c, where, "bits", true, q, err);
    if (status == QUIRE_OK)
        status = read_group(c, where, q, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(c, where, "sym", &q->symmetric, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(c, where, "desc_act", &q->in_order, err);
    if (status == QUIRE_OK)
        status = quire_json_string(c, where, "checkpoint_format", &format, err);
    if (status != QUIRE_OK)
        return status;
    q->zero_is_less = strcmp(format, "gptq") == 0;
    if (!q->zero_is_less && strcmp(format, "gptq_v2") != 0)
        return refuse(where, "checkpoint_format", format, "gptq and gptq_v2 are", err);
    return QUIRE_OK;
}

static int read_awq(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    const char *version = "gemm";
    bool has_zeros = true;
    q->layout = QUANTIZATION_AWQ;
    int status = read_bits(c, where, json_object_get(c, "w_bit") ? "w_bit" : "bits", false, q, err);
    if (status == QUIRE_OK)
        status = read_group(c, where, q, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(c, where, "zero_point", &has_zeros, err);
    if (status == QUIRE_OK)
        status = quire_json_string(c, where, "version", &version, err);
    if (status != QUIRE_OK)
        return status;
    if (!has_zeros)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: zero_point: false is not supported (true is)", where);
    return strcasecmp(version, "gemm") == 0 ? QUIRE_OK : refuse(where, "version", version, "gemm is", err);
}

/* [rows, columns] that share a scale, of FP8. */
static int read_block(const json_t *c, const char *where, const char *key, struct quantization *q,
                      struct quire_error *err)
{
    json_t *size = NULL;
    int status = quire_json_array(c, where, key, &size, err);
    if (status != QUIRE_OK || !size)
        return status;
    const json_t *rows = json_array_get(size, 0), *cols = json_array_get(size, 1);
    const json_int_t n_rows = json_integer_value(rows), n_cols = json_integer_value(cols);
    if (json_array_size(size) != 2 || !json_is_integer(rows) || !json_is_integer(cols) || n_rows < 1 || n_cols < 16 ||
        n_rows > MAX_GROUP || n_cols > MAX_GROUP || n_cols % 16 != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: must be two sizes, the second a multiple of 16", where, key);
    q->block_rows = (uint32_t)n_rows;
    q->group = (uint32_t)n_cols;
    return QUIRE_OK;
}

static int read_fp8(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    const char *fmt = NULL;
    q->layout = QUANTIZATION_ELEMENTS;
    q->is_float = q->symmetric = true;
    q->bits = 8;
    int status = quire_json_string(c, where, "fmt", &fmt, err);
    if (status != QUIRE_OK)
        return status;
    if (fmt) {
        q->floats = strstr(fmt, "e4m3") ? "F8_E4M3" : strstr(fmt, "e5m2") ? "F8_E5M2" : NULL;
        if (!q->floats)
            return refuse(where, "fmt", fmt, "e4m3 and e5m2 are", err);
    }
    return read_block(c, where, "weight_block_size", q, err);
}

/* Which modules are not converted the tensors say. */
static int read_mxfp4(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    (void)c;
    (void)where;
    (void)err;
    q->layout = QUANTIZATION_MXFP4;
    q->is_float = q->symmetric = true;
    q->bits = 4;
    q->group = 32;
    return QUIRE_OK;
}

/* ---- compressed-tensors ---------------------------------------------------------------------------------------- */

/* One form alone: e2m1 in groups of 32 without zero points. */
static int read_mxfp4_weights(const json_t *w, const char *where, const char *strategy, struct quantization *q,
                              struct quire_error *err)
{
    if (strcmp(strategy, "group") != 0)
        return refuse(where, "strategy", strategy, "group is, in mxfp4-pack-quantized", err);
    int status = read_group(w, where, q, err);
    if (status == QUIRE_OK && (q->bits != 4 || q->group != 32 || !q->symmetric || q->in_order))
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "%s: mxfp4-pack-quantized needs num_bits 4, group_size 32, symmetric true and no actorder",
                            where);
    return status;
}

static int read_ct_weights(const json_t *w, const char *where, const char *format, struct quantization *q,
                           struct quire_error *err)
{
    const char *type = "int", *strategy = "tensor";
    json_t *in_order = json_object_get(w, "actorder");
    q->symmetric = true;
    int status = quire_json_string(w, where, "type", &type, err);
    if (status == QUIRE_OK)
        status = quire_json_string(w, where, "strategy", &strategy, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(w, where, "symmetric", &q->symmetric, err);
    if (status != QUIRE_OK)
        return status;
    const bool is_mxfp4 = strcmp(format, "mxfp4-pack-quantized") == 0;
    const bool is_packed = is_mxfp4 || strcmp(format, "pack-quantized") == 0;
    q->is_float = strcmp(type, "float") == 0;
    if (!q->is_float && strcmp(type, "int") != 0)
        return refuse(where, "type", type, "int and float are", err);
    if (is_packed && q->is_float != is_mxfp4)
        return refuse(where, "type", type, is_mxfp4 ? "float is, in mxfp4-pack-quantized" : "int is, in pack-quantized",
                      err);
    q->layout = is_packed ? QUANTIZATION_PACKED : QUANTIZATION_ELEMENTS;
    q->in_order = json_is_true(in_order) ||
                  (json_is_string(in_order) && strcmp(json_string_value(in_order), "group") == 0);
    status = read_bits(w, where, "num_bits", true, q, err);
    if (status == QUIRE_OK && !is_packed && q->bits != 8)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: num_bits: %u is not supported in %s (8 is)", where, q->bits,
                          format);
    if (status == QUIRE_OK && is_mxfp4)
        return read_mxfp4_weights(w, where, strategy, q, err);
    if (status == QUIRE_OK && strcmp(strategy, "group") == 0)
        return read_group(w, where, q, err);
    if (status == QUIRE_OK && strcmp(strategy, "block") == 0)
        return read_block(w, where, "block_structure", q, err);
    if (status == QUIRE_OK && strcmp(strategy, "channel") != 0 && strcmp(strategy, "tensor") != 0)
        return refuse(where, "strategy", strategy, "tensor, channel, group and block are", err);
    return status;
}

/* Activations of FP8 stay as they are: only those of int8 are a form. */
static int read_ct_inputs(const json_t *a, const char *where, struct quantization *q, struct quire_error *err)
{
    bool dynamic = false, symmetric = true;
    const char *type = "int", *strategy = "tensor";
    uint32_t bits = 8;
    int status = quire_json_bool(a, where, "symmetric", &symmetric, err);
    if (status == QUIRE_OK)
        status = quire_json_string(a, where, "type", &type, err);
    if (status == QUIRE_OK)
        status = quire_json_string(a, where, "strategy", &strategy, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(a, where, "num_bits", 1, 64, &bits, err);
    if (status == QUIRE_OK && !json_is_string(json_object_get(a, "dynamic")))
        status = quire_json_bool(a, where, "dynamic", &dynamic, err);
    if (status != QUIRE_OK || q->is_float)
        return status;
    if (strcmp(type, "int") != 0 || bits != 8)
        return refuse(where, "type", type, "int of 8 bits is, for weights of integers", err);
    if (!symmetric)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: symmetric: activations with zero points are not supported",
                          where);
    if (!dynamic && strcmp(strategy, "tensor") != 0)
        return refuse(where, "strategy", strategy, "tensor is, where dynamic is false", err);
    q->inputs = dynamic ? INPUTS_DYNAMIC : INPUTS_STATIC;
    return QUIRE_OK;
}

static bool has_cache_scales(const json_t *c)
{
    const json_t *scheme = json_object_get(c, "kv_cache_scheme");
    return scheme && !json_is_null(scheme);
}

static int read_compressed_tensors(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                          "mxfp4-pack-quantized"};
    const char *format = "dense", *sparsity = "dense", *key;
    json_t *groups = NULL, *weights = NULL, *inputs = NULL, *outputs = NULL, *sparse = NULL, *one;
    char at[96] = "";
    int status = quire_json_string(c, where, "format", &format, err);
    if (status == QUIRE_OK)
        status = quire_json_object(c, where, "config_groups", &groups, err);
    if (status == QUIRE_OK)
        status = quire_json_object(c, where, "sparsity_config", &sparse, err);
    if (status == QUIRE_OK && sparse)
        status = quire_json_string(sparse, where, "format", &sparsity, err);
    if (status != QUIRE_OK)
        return status;
    if (strcmp(sparsity, "dense") != 0)
        return refuse(where, "sparsity_config: format", sparsity, "dense is", err);
    if ((!groups || json_object_size(groups) == 0) && has_cache_scales(c))
        return QUIRE_OK; /* nothing else is quantized */
    if (!groups || json_object_size(groups) != 1)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: config_groups: %zu are not supported (1 is)", where,
                          groups ? json_object_size(groups) : 0);
    one = json_object_iter_value(json_object_iter(groups));
    key = json_object_iter_key(json_object_iter(groups));
    if (!json_is_object(one))
        return quire_fail(err, QUIRE_INVALID, "%s: config_groups: must hold objects", where);
    if (json_is_string(json_object_get(one, "format")))
        format = json_string_value(json_object_get(one, "format"));
    size_t f = 0;
    while (f < sizeof formats / sizeof formats[0] && strcmp(format, formats[f]) != 0)
        f++;
    if (f == sizeof formats / sizeof formats[0])
        return refuse(where, "format", format, "pack-, int-, float-, naive- and mxfp4-pack-quantized are", err);
    status = quire_json_object(one, where, "weights", &weights, err);
    if (status == QUIRE_OK)
        status = quire_json_object(one, where, "input_activations", &inputs, err);
    if (status == QUIRE_OK)
        status = quire_json_object(one, where, "output_activations", &outputs, err);
    if (status == QUIRE_OK && (!weights || outputs))
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: config_groups: %s", where,
                          outputs ? "output_activations are not supported" : "weights are missing");
    char group[32];
    snprintf(at, sizeof at, "%s: %s", where, model_shown(key, group, sizeof group));
    if (status == QUIRE_OK)
        status = read_ct_weights(weights, at, format, q, err);
    return status == QUIRE_OK && inputs ? read_ct_inputs(inputs, at, q, err) : status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int read_method(const json_t *c, const char *where, struct quantization *q, struct quire_error *err)
{
    static const struct {
        const char *name;
        int (*read)(const json_t *c, const char *where, struct quantization *q, struct quire_error *err);
    } methods[] = {{"gptq", read_gptq},
                   {"awq", read_awq},
                   {"compressed-tensors", read_compressed_tensors},
                   {"fp8", read_fp8},
                   {"mxfp4", read_mxfp4}};
    const char *method = NULL;
    int status = quire_json_string(c, where, "quant_method", &method, err);
    if (status != QUIRE_OK)
        return status;
    if (!method)
        return quire_fail(err, QUIRE_INVALID, "%s: quant_method: is missing", where);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(method, methods[i].name) == 0) {
            q->method = methods[i].name;
            return methods[i].read(c, where, q, err);
        }
    return refuse(where, "quant_method", method, "gptq, awq, compressed-tensors, fp8 and mxfp4 are", err);
}

int quantization_read(const json_t *config, struct quantization *out, struct quire_error *err)
{
    static const struct {
        const char *key, *where;
    } places[] = {{"quantization_config", "config.json: quantization_config"},
                  {"compression_config", "config.json: compression_config"}};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < 2; i++) {
        const json_t *c = json_object_get(config, places[i].key);
        if (!c || json_is_null(c))
            continue;
        if (!json_is_object(c))
            return quire_fail(err, QUIRE_INVALID, "%s: must be an object", places[i].where);
        int status = read_method(c, places[i].where, out, err);
        out->scales_cache = has_cache_scales(c);
        return status;
    }
    return QUIRE_OK;
}

const char *quantization_name(const struct quantization *q)
{
    return q->method ? q->method : "none";
}

/* ---- --quantization ---------------------------------------------------------------------------------------------- */

/* Integers use GGUF's block sizes, because the kernels are fastest with them. FP8 uses the blocks that DeepSeek and
 * Qwen3 ship. A head in 4 bits or in e4m3 would cost more accuracy than the memory is worth. */
static const struct quantization_made made[] = {
    {"int8", "int8:Q8_0", 1, {K_INT, 8, 32, K_F16, K_PACKING_Q8_0}, {K_INT, 8, 32, K_F16, K_PACKING_Q8_0}},
    {"int4-block", "int4-block:Q4_0", 2, {K_INT, 4, 32, K_F16, K_PACKING_Q4_0}, {K_INT, 8, 32, K_F16, K_PACKING_Q8_0}},
    {"fp8", "fp8:float8_e4m3", 3, {K_E4M3, 8, 128, K_F32, K_PACKING_PLANES}, {.bits = 0}},
};

/* Names of kernels in vLLM, for files of the same kind. */
static const char *const aliases[][2] = {{"gptq_marlin", "gptq"},
                                         {"gptq_bitblas", "gptq"},
                                         {"awq_marlin", "awq"},
                                         {"compressed_tensors", "compressed-tensors"}};

int quantization_choose(const char *name, const char *has, struct quantization *q, struct quire_error *err)
{
    const char *asked = name;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        asked = strcmp(name, aliases[i][0]) == 0 ? aliases[i][1] : asked;
    if (strcmp(asked, has) == 0)
        return QUIRE_OK;
    if (strcmp(has, "none") != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--quantization %.40s: the checkpoint's quantization is %s: leave the option out", name, has);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        if (strcmp(asked, made[i].name) == 0) {
            q->layout = QUANTIZATION_MADE;
            q->method = made[i].name;
            q->made = &made[i];
            return QUIRE_OK;
        }
    return quire_fail(err, QUIRE_INVALID,
                      "--quantization %.40s: the checkpoint is not quantized: leave the option out, or give int8, "
                      "int4-block or fp8, which quantize it while it is loaded",
                      name);
}

const struct quantization_made *quantization_made_of(uint8_t code)
{
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        if (made[i].code == code)
            return &made[i];
    return NULL;
}
