#include "engine/model/pooling.h"

#include "base/encoding/json.h"
#include "engine/model/rope_config.h"

#include <string.h>

#define MODULES "modules.json"
#define LIMITS "sentence_bert_config.json"
#define MAX_DENSE 8192u /* numbers of a vector that the wire takes */

/* "sentence_transformers.models.Pooling" and its later names end alike. */
static bool is_module(const char *type, const char *name)
{
    const char *dot = strrchr(type, '.');
    return strcmp(dot ? dot + 1 : type, name) == 0;
}

/* The folder of a module that has files. */
static int module_folder(const json_t *module, size_t i, const char **out, struct quire_error *err)
{
    *out = json_string_value(json_object_get(module, "path"));
    return *out ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, MODULES ": module %zu: path: must be a string", i);
}

int pooling_modules(const json_t *modules, struct model_config *model, struct pooling_folders *folders,
                    struct quire_error *err)
{
    size_t i;
    json_t *module;
    *folders = (struct pooling_folders){NULL, NULL};
    model->outputs.normalize = false;
    model->outputs.dense.size = 0;
    if (model->outputs.n_labels == 0) {
        model->outputs.kind = OUTPUT_VECTOR;
        model->outputs.pooling = model->encoder ? POOLING_MEAN : POOLING_LAST;
        model->outputs.vector_size = model->hidden_size;
    }
    if (!modules || model->outputs.n_labels > 0)
        return QUIRE_OK;
    if (!json_is_array(modules))
        return quire_fail(err, QUIRE_INVALID, MODULES ": must be a list");
    json_array_foreach(modules, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        char shown[64];
        int status = QUIRE_OK;
        if (!type)
            return quire_fail(err, QUIRE_INVALID, MODULES ": module %zu: type: must be a string", i);
        if (i == 0 && is_module(type, "Transformer"))
            continue;
        if (i == 1 && is_module(type, "Pooling"))
            status = module_folder(module, i, &folders->pooling, err);
        else if (i == 2 && is_module(type, "Dense"))
            status = module_folder(module, i, &folders->dense, err);
        else if (i == (folders->dense ? 3 : 2) && is_module(type, "Normalize"))
            model->outputs.normalize = true;
        else
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              MODULES ": module %zu: '%s' is not supported there (Transformer, Pooling, a Dense and"
                                      " then Normalize are)",
                              i, model_shown(type, shown, sizeof shown));
        if (status != QUIRE_OK)
            return status;
    }
    return i >= 2 ? QUIRE_OK : quire_fail(err, QUIRE_UNSUPPORTED, MODULES ": the Pooling module is missing");
}

static int read_mode(const json_t *pooling, const char *file, struct model_config *model, struct quire_error *err)
{
    static const struct {
        const char *key;
        enum model_pooling pooling; /* POOLING_NONE: not supported */
    } modes[] = {
        {"pooling_mode_mean_tokens", POOLING_MEAN},
        {"pooling_mode_cls_token", POOLING_CLS},
        {"pooling_mode_lasttoken", POOLING_LAST},
        {"pooling_mode_max_tokens", POOLING_NONE},
        {"pooling_mode_mean_sqrt_len_tokens", POOLING_NONE},
        {"pooling_mode_weightedmean_tokens", POOLING_NONE},
    };
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        bool on = false;
        int status = quire_json_bool(pooling, file, modes[i].key, &on, err);
        if (status != QUIRE_OK)
            return status;
        if (on && modes[i].pooling == POOLING_NONE)
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: is not supported; supported: mean, cls, lasttoken", file,
                              modes[i].key);
        if (on)
            model->outputs.pooling = modes[i].pooling;
        n += on;
    }
    return n == 1
               ? QUIRE_OK
               : quire_fail(err, QUIRE_UNSUPPORTED, "%s: %u pooling modes are set; exactly one is supported", file, n);
}

int pooling_config(const json_t *pooling, const char *file, const json_t *limits, struct model_config *model,
                   struct quire_error *err)
{
    uint32_t n = model->outputs.vector_size, longest = model->max_position;
    int status = QUIRE_OK;
    if (pooling && !json_is_object(pooling))
        return quire_fail(err, QUIRE_INVALID, "%s: must be a JSON object", file);
    if (limits && !json_is_object(limits))
        return quire_fail(err, QUIRE_INVALID, LIMITS ": must be a JSON object");
    if (pooling)
        status = read_mode(pooling, file, model, err);
    if (status == QUIRE_OK && pooling)
        status = quire_json_u32(pooling, file, "word_embedding_dimension", 1, UINT32_MAX, &n, err);
    if (status == QUIRE_OK && n != model->outputs.vector_size)
        return quire_fail(err, QUIRE_INVALID, "%s: word_embedding_dimension: is %u, but the model has %u", file, n,
                          model->outputs.vector_size);
    if (status == QUIRE_OK && limits)
        status = quire_json_u32(limits, LIMITS, "max_seq_length", 1, UINT32_MAX, &longest, err);
    if (status == QUIRE_OK && longest < model->max_position)
        model->max_position = longest;
    return status;
}

/* Identity and Tanh, in any of torch's modules. */
static int read_activation(const json_t *dense, const char *file, struct model_config *model, struct quire_error *err)
{
    const char *name = "Tanh";
    char shown[64];
    int status = quire_json_string(dense, file, "activation_function", &name, err);
    if (status != QUIRE_OK)
        return status;
    model->outputs.dense.tanh = is_module(name, "Tanh");
    return model->outputs.dense.tanh || is_module(name, "Identity")
               ? QUIRE_OK
               : quire_fail(err, QUIRE_UNSUPPORTED,
                            "%s: activation_function: '%s' is not supported; supported: Identity, Tanh", file,
                            model_shown(name, shown, sizeof shown));
}

/* It may take other things than the vector, and leave it as it was. */
static int check_names(const json_t *dense, const char *file, struct quire_error *err)
{
    static const char *const keys[] = {"module_input_name", "module_output_name"};
    for (size_t i = 0; i < 2; i++) {
        const char *name = "sentence_embedding";
        char shown[64];
        int status = quire_json_string(dense, file, keys[i], &name, err);
        if (status != QUIRE_OK)
            return status;
        if (strcmp(name, "sentence_embedding") != 0)
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: '%s' is not supported; supported: sentence_embedding",
                              file, keys[i], model_shown(name, shown, sizeof shown));
    }
    return QUIRE_OK;
}

int pooling_dense(const json_t *dense, const char *file, struct model_config *model, struct quire_error *err)
{
    uint32_t n_in = 0, n_out = 0;
    if (!dense)
        return QUIRE_OK;
    if (!json_is_object(dense))
        return quire_fail(err, QUIRE_INVALID, "%s: must be a JSON object", file);
    model->outputs.dense.bias = true;
    int status = quire_json_u32(dense, file, "in_features", 1, UINT32_MAX, &n_in, err);
    if (status == QUIRE_OK && n_in != model->outputs.vector_size)
        status = quire_fail(err, QUIRE_INVALID, "%s: in_features: is %u, but the model has %u", file, n_in,
                            model->outputs.vector_size);
    if (status == QUIRE_OK)
        status = quire_json_u32(dense, file, "out_features", 1, MAX_DENSE, &n_out, err);
    if (status == QUIRE_OK && n_out == 0)
        status = quire_fail(err, QUIRE_INVALID, "%s: out_features: is missing", file);
    if (status == QUIRE_OK)
        status = quire_json_bool(dense, file, "bias", &model->outputs.dense.bias, err);
    if (status == QUIRE_OK)
        status = read_activation(dense, file, model, err);
    if (status == QUIRE_OK)
        status = check_names(dense, file, err);
    if (status == QUIRE_OK)
        model->outputs.dense.size = model->outputs.vector_size = n_out;
    return status;
}
