#include "speculation/config.h"

#include "base/encoding/json.h"
#include "speculation/drafter.h"
#include "speculation/ngram.h"
#include "speculation/suffix.h"

#include <string.h>

#define WHERE "JSON" /* the option's name comes before it */
#define N_MEMBERS (sizeof members / sizeof members[0])

_Static_assert(SPECULATIVE_MAX_LOOKUP == NGRAM_MAX_LOOKUP, "every accepted value must work");

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
    *config = (struct speculative_config)SPECULATIVE_CONFIG_DEFAULT;
}

/* All members of the JSON object. */
static const struct member {
    const char *name;
    enum { METHOD, NUMBER, SHARE, SWITCH, PATH } kind;
    enum draft_method of; /* DRAFT_NONE: valid for all methods */
    size_t at;            /* offset in the struct */
    double min, max;
} members[] = {
#define AT(field) offsetof(struct speculative_config, field)
    {"method", METHOD, DRAFT_NONE, AT(method), 0, 0},
    {"num_speculative_tokens", NUMBER, DRAFT_NONE, AT(num_speculative_tokens), 1, DRAFT_MAX},
    {"adaptive", SWITCH, DRAFT_NONE, AT(adaptive), 0, 0},
    {"prompt_lookup_min", NUMBER, DRAFT_NGRAM, AT(prompt_lookup_min), 1, SPECULATIVE_MAX_LOOKUP},
    {"prompt_lookup_max", NUMBER, DRAFT_NGRAM, AT(prompt_lookup_max), 1, SPECULATIVE_MAX_LOOKUP},
    {"suffix_decoding_max_tree_depth", NUMBER, DRAFT_SUFFIX, AT(max_tree_depth), 1, SUFFIX_MAX_DEPTH},
    {"suffix_decoding_max_cached_requests", NUMBER, DRAFT_SUFFIX, AT(max_cached_requests), 0, UINT32_MAX},
    {"suffix_decoding_max_cached_bytes", NUMBER, DRAFT_SUFFIX, AT(max_cached_bytes), 0, UINT32_MAX},
    {"suffix_decoding_max_spec_factor", SHARE, DRAFT_SUFFIX, AT(max_spec_factor), 0, 1000},
    {"suffix_decoding_min_token_prob", SHARE, DRAFT_SUFFIX, AT(min_token_prob), 0, 1},
    {"model", PATH, DRAFT_MODEL, AT(model), 0, 0},
#undef AT
};

/* For an error message: the text may contain any bytes. */
static const char *shown(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "a name with control characters";
    return text;
}

static const struct member *member_find(const char *name)
{
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

/* Methods of vLLM that need weights trained for one model. */
static bool needs_a_head(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "eagle", 5) == 0 || strcmp(name, "medusa") == 0 || strcmp(name, "mlp_speculator") == 0 ||
           (n >= 3 && strcmp(name + n - 3, "mtp") == 0);
}

static int read_method(const json_t *object, enum draft_method *out, struct quire_error *err)
{
    const char *name = NULL;
    int status = quire_json_string(object, WHERE, "method", &name, err);
    if (status != QUIRE_OK)
        return status;
    *out = name                                               ? draft_method_find(name)
           : json_is_string(json_object_get(object, "model")) ? DRAFT_MODEL
                                                              : DRAFT_N_METHODS;
    if (!name && *out == DRAFT_N_METHODS)
        return quire_fail(err, QUIRE_INVALID, WHERE ": method: is missing: ngram, suffix or draft_model");
    if (*out == DRAFT_N_METHODS && needs_a_head(name))
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          WHERE ": method: %.40s is not supported; supported methods: ngram, suffix, draft_model",
                          shown(name));
    if (*out == DRAFT_N_METHODS)
        return quire_fail(err, QUIRE_INVALID, WHERE ": method: must be ngram, suffix or draft_model, got '%.40s'",
                          shown(name));
    return QUIRE_OK;
}

static int read_path(const json_t *object, const char *name, char out[SPECULATIVE_MAX_PATH], struct quire_error *err)
{
    const char *path = NULL;
    int status = quire_json_string(object, WHERE, name, &path, err);
    if (status != QUIRE_OK || !path)
        return status;
    if (!*path || strlen(path) >= SPECULATIVE_MAX_PATH)
        return quire_fail(err, QUIRE_INVALID, WHERE ": %s: must have 1 to %u bytes", name, SPECULATIVE_MAX_PATH - 1);
    memcpy(out, path, strlen(path) + 1);
    return QUIRE_OK;
}

static int read_member(const json_t *object, const struct member *m, struct speculative_config *out,
                       struct quire_error *err)
{
    void *at = (char *)out + m->at;
    switch (m->kind) {
    case METHOD: return read_method(object, at, err);
    case NUMBER: return quire_json_u32(object, WHERE, m->name, (uint32_t)m->min, (uint32_t)m->max, at, err);
    case SHARE: return quire_json_f64(object, WHERE, m->name, m->min, m->max, at, err);
    case SWITCH: return quire_json_bool(object, WHERE, m->name, at, err);
    case PATH: return read_path(object, m->name, at, err);
    }
    return QUIRE_OK;
}

static bool is_given(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value && !json_is_null(value);
}

static int check_names(json_t *object, struct quire_error *err)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return quire_fail(err, QUIRE_INVALID,
                          WHERE ": must be an object, as in {\"method\": \"ngram\", \"num_speculative_tokens\": 8}");
    json_object_foreach(object, name, value) if (!member_find(name)) return quire_fail(
        err, QUIRE_INVALID, WHERE ": %.60s: unknown member", shown(name));
    return QUIRE_OK;
}

/* The method is already set: members of another method are errors. */
static int read_members(const json_t *object, struct speculative_config *out, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < N_MEMBERS; i++) {
        const struct member *m = &members[i];
        if (m->of != DRAFT_NONE && m->of != out->method && is_given(object, m->name))
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s: needs method %s, but the method is %s", m->name,
                              draft_method_name(m->of), draft_method_name(out->method));
        status = read_member(object, m, out, err);
    }
    return status;
}

/* Checks members against each other. */
static int check_together(const json_t *object, struct speculative_config *c, struct quire_error *err)
{
    if (c->method == DRAFT_MODEL && !*c->model)
        return quire_fail(err, QUIRE_INVALID, WHERE ": model: is missing: the draft model's directory");
    if (c->prompt_lookup_min <= c->prompt_lookup_max)
        return QUIRE_OK;
    if (is_given(object, "prompt_lookup_min") && is_given(object, "prompt_lookup_max"))
        return quire_fail(err, QUIRE_INVALID,
                          WHERE ": prompt_lookup_min: must be at most prompt_lookup_max, %u, got %u",
                          c->prompt_lookup_max, c->prompt_lookup_min);
    if (is_given(object, "prompt_lookup_min"))
        c->prompt_lookup_max = c->prompt_lookup_min;
    else
        c->prompt_lookup_min = c->prompt_lookup_max;
    return QUIRE_OK;
}

int speculative_config_parse(const char *json, size_t n_bytes, struct speculative_config *out, struct quire_error *err)
{
    json_t *object;
    speculative_config_default(out);
    int status = quire_json_parse(json, n_bytes, 4, WHERE, &object, err);
    if (status != QUIRE_OK)
        return status;
    status = check_names(object, err);
    if (status == QUIRE_OK)
        status = read_members(object, out, err);
    if (status == QUIRE_OK)
        status = check_together(object, out, err);
    json_decref(object);
    return status;
}
