#include "speculation/config.h"

#include "base/json.h"
#include "speculation/drafter.h"

#include <string.h>

static const char *const method_names[DRAFT_N_METHODS] = {"none", "ngram", "suffix", "draft_model"};

const char *draft_method_name(enum draft_method method)
{
    return method_names[method];
}

enum draft_method draft_method_find(const char *name)
{
    enum draft_method m = 0;
    while (m < DRAFT_N_METHODS && strcmp(method_names[m], name) != 0)
        m++;
    return m;
}

void speculative_config_default(struct speculative_config *config)
{
    *config = (struct speculative_config){.num_speculative_tokens = 16, .prompt_lookup_min = 2, .prompt_lookup_max = 5};
}

int speculative_config_parse(const char *json, size_t n_bytes, struct speculative_config *out, struct quire_error *err)
{
    static const char where[] = "--speculative-config";
    json_t *object;
    const char *name = NULL, *model = NULL;
    speculative_config_default(out);
    int status = quire_json_parse(json, n_bytes, 4, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    status = quire_json_string(object, where, "method", &name, err);
    if (status == QUIRE_OK)
        out->method = draft_method_find(name);
    if (status == QUIRE_OK && out->method == DRAFT_N_METHODS)
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "%s: method '%.40s' is not built; there are ngram, suffix and"
                            " draft_model",
                            where, name);
    if (status == QUIRE_OK && json_object_get(object, "num_speculative_tokens"))
        status = quire_json_u32(object, where, "num_speculative_tokens", 1, DRAFT_MAX, &out->num_speculative_tokens,
                                err);
    if (status == QUIRE_OK && json_object_get(object, "model"))
        status = quire_json_string(object, where, "model", &model, err);
    if (status == QUIRE_OK && model && strlen(model) >= sizeof out->model)
        status = quire_fail(err, QUIRE_INVALID, "%s: model: the path is too long", where);
    if (status == QUIRE_OK && model)
        memcpy(out->model, model, strlen(model) + 1);
    json_decref(object);
    return status;
}
