#include "engine/model/pooling.h"

#include "base/json.h"
#include "engine/model/rope_config.h"

#include <string.h>

#define MODULES "modules.json"
#define LIMITS "sentence_bert_config.json"

/* "sentence_transformers.models.Pooling" and its later names end alike. */
static bool is_module(const char *type, const char *name)
{
    const char *dot = strrchr(type, '.');
    return strcmp(dot ? dot + 1 : type, name) == 0;
}

int pooling_modules(const json_t *modules, struct model_desc *desc, const char **path, struct quire_error *err)
{
    size_t i;
    json_t *module;
    *path = NULL;
    desc->normalize = false;
    if (desc->n_labels == 0) {
        desc->pooling = desc->encoder ? POOLING_MEAN : POOLING_LAST;
        desc->vector_size = desc->hidden_size;
    }
    if (!modules || desc->n_labels > 0)
        return QUIRE_OK;
    if (!json_is_array(modules))
        return quire_fail(err, QUIRE_INVALID, MODULES ": must be a list");
    json_array_foreach(modules, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        char shown[64];
        if (!type)
            return quire_fail(err, QUIRE_INVALID, MODULES ": module %zu: type: must be a string", i);
        if (i == 0 && is_module(type, "Transformer"))
            continue;
        if (i == 1 && is_module(type, "Pooling"))
            *path = json_string_value(json_object_get(module, "path"));
        else if (i == 2 && is_module(type, "Normalize"))
            desc->normalize = true;
        else
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              MODULES
                              ": module %zu: '%s' is not supported there (Transformer, Pooling and then Normalize"
                              " are)",
                              i, model_shown(type, shown, sizeof shown));
        if (i == 1 && !*path)
            return quire_fail(err, QUIRE_INVALID, MODULES ": module 1: path: must be a string");
    }
    return i >= 2 ? QUIRE_OK : quire_fail(err, QUIRE_UNSUPPORTED, MODULES ": a model without a Pooling module");
}

static int read_mode(const json_t *pooling, const char *file, struct model_desc *desc, struct quire_error *err)
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
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: %s: is not supported (mean, cls and lasttoken are)", file,
                              modes[i].key);
        if (on)
            desc->pooling = modes[i].pooling;
        n += on;
    }
    return n == 1 ? QUIRE_OK
                  : quire_fail(err, QUIRE_UNSUPPORTED, "%s: %u pooling modes are on, one is supported", file, n);
}

int pooling_config(const json_t *pooling, const char *file, const json_t *limits, struct model_desc *desc,
                   struct quire_error *err)
{
    uint32_t n = desc->vector_size, longest = desc->max_position;
    int status = QUIRE_OK;
    if (pooling && !json_is_object(pooling))
        return quire_fail(err, QUIRE_INVALID, "%s: must be a JSON object", file);
    if (limits && !json_is_object(limits))
        return quire_fail(err, QUIRE_INVALID, LIMITS ": must be a JSON object");
    if (pooling)
        status = read_mode(pooling, file, desc, err);
    if (status == QUIRE_OK && pooling)
        status = quire_json_u32(pooling, file, "word_embedding_dimension", 1, UINT32_MAX, &n, err);
    if (status == QUIRE_OK && n != desc->vector_size)
        return quire_fail(err, QUIRE_INVALID, "%s: word_embedding_dimension: is %u, and the model has %u", file, n,
                          desc->vector_size);
    if (status == QUIRE_OK && limits)
        status = quire_json_u32(limits, LIMITS, "max_seq_length", 1, UINT32_MAX, &longest, err);
    if (status == QUIRE_OK && longest < desc->max_position)
        desc->max_position = longest;
    return status;
}
