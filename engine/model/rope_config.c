#include "engine/model/rope_config.h"

#include "base/encoding/json.h"
#include "kernels/math/wide.h"

#include <string.h>

#define WHERE "config.json"
/* Limits of plausible values for rope_theta and scaling factors. The code divides by the logarithm of θ, so θ > 1. */
#define MIN_THETA 2.0
#define MAX_THETA 1e15
#define MAX_FACTOR 65536.0

const char *model_shown(const char *text, char *buffer, size_t n)
{
    size_t i;
    for (i = 0; i + 1 < n && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        buffer[i] = c < 0x20 || c >= 0x7f ? '?' : text[i];
    }
    buffer[i] = '\0';
    return buffer;
}

/* Like quire_json_f64, but the key must be there. */
static int required_f64(const json_t *object, const char *where, const char *key, double min, double max, double *out,
                        struct quire_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: is missing", where, key);
    return quire_json_f64(object, where, key, min, max, out, err);
}

/* Rotates the first part of a head. A part must leave whole 16s. share: the default. */
static int read_partial(const json_t *object, const char *where, double share, struct model_rope *rope,
                        struct quire_error *err)
{
    const uint32_t head_dim = rope->dim;
    int status = quire_json_f64(object, where, "partial_rotary_factor", 0.0, 1.0, &share, err);
    if (status != QUIRE_OK || share == 1.0)
        return status;
    rope->dim = (uint32_t)(head_dim * share);
    if (rope->dim == 0 || (head_dim - rope->dim) % 16 != 0)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "%s: partial_rotary_factor: %g rotates %u numbers of a head's %u, but all but a multiple of 16 "
            "is supported",
            where, share, rope->dim, head_dim);
    return QUIRE_OK;
}

/* Rotating part of a head only is another model's arithmetic. */
static int refuse_partial(const json_t *object, const char *where, struct quire_error *err)
{
    double share = 1.0;
    int status = quire_json_f64(object, where, "partial_rotary_factor", 0.0, 1.0, &share, err);
    if (status == QUIRE_OK && share != 1.0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: partial_rotary_factor: only 1 is supported, got %g", where,
                          share);
    return status;
}

/* original_max_position_embeddings: beside the scaling's fields where a config has it there (it
 * wins), within them, or else what max_position_embeddings says: transformers' order. */
static int original_max(const json_t *config, const json_t *says, const char *where, uint32_t max_position,
                        struct model_rope *rope, struct quire_error *err)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *outer = json_object_get(config, key);
    rope->original_max = max_position;
    if (outer && !json_is_null(outer))
        return quire_json_f64(config, WHERE, key, 1.0, MODEL_MAX_POSITIONS, &rope->original_max, err);
    return quire_json_f64(says, where, key, 1.0, MODEL_MAX_POSITIONS, &rope->original_max, err);
}

static int read_llama3(const json_t *config, const json_t *says, const char *where, uint32_t max_position,
                       struct model_rope *rope, struct quire_error *err)
{
    int status = required_f64(says, where, "factor", 1.0, MAX_FACTOR, &rope->factor, err);
    if (status == QUIRE_OK)
        status = required_f64(says, where, "low_freq_factor", 1e-3, 1e6, &rope->low_freq, err);
    if (status == QUIRE_OK)
        status = required_f64(says, where, "high_freq_factor", 1e-3, 1e6, &rope->high_freq, err);
    if (status == QUIRE_OK && rope->high_freq <= rope->low_freq)
        return quire_fail(err, QUIRE_INVALID, "%s: high_freq_factor: must be above low_freq_factor (%g), got %g", where,
                          rope->low_freq, rope->high_freq);
    if (status == QUIRE_OK)
        status = original_max(config, says, where, max_position, rope, err);
    return status;
}

/* The attention factor that a factor suggests, as the YaRN paper has it. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * k_log64(factor) + 1.0;
}

static int read_yarn(const json_t *config, const json_t *says, const char *where, uint32_t max_position,
                     struct model_rope *rope, struct quire_error *err)
{
    double attention = 0.0, mscale = 0.0, mscale_all = 0.0;
    int status = required_f64(says, where, "factor", 1.0, MAX_FACTOR, &rope->factor, err);
    if (status == QUIRE_OK)
        status = original_max(config, says, where, max_position, rope, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "beta_fast", 0.0, 1e6, &rope->beta_fast, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "beta_slow", 0.0, 1e6, &rope->beta_slow, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "attention_factor", 1e-6, 1e3, &attention, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "mscale", 0.0, 1e3, &mscale, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "mscale_all_dim", 0.0, 1e3, &mscale_all, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(says, where, "truncate", &rope->truncate, err);
    if (status != QUIRE_OK)
        return status;

    /* To transformers a zero is the same as nothing said. */
    if (rope->beta_fast == 0.0)
        rope->beta_fast = 32.0;
    if (rope->beta_slow == 0.0)
        rope->beta_slow = 1.0;
    if (rope->beta_fast < rope->beta_slow)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: beta_fast: must not be below beta_slow (%g), got"
                          " %g",
                          where, rope->beta_slow, rope->beta_fast);
    if (attention > 0.0)
        rope->attention_factor = attention;
    else if (mscale > 0.0 && mscale_all > 0.0)
        rope->attention_factor = yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all);
    else
        rope->attention_factor = yarn_mscale(rope->factor, 1.0);
    return QUIRE_OK;
}

static int read_factors(const json_t *says, const char *where, const char *key, const struct model_rope *rope,
                        float *out, struct quire_error *err)
{
    json_t *list = NULL;
    int status = quire_json_array(says, where, key, &list, err);
    if (status != QUIRE_OK)
        return status;
    if (json_array_size(list) != rope->dim / 2)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must have %u numbers, one for each frequency, got %zu", where,
                          key, rope->dim / 2, json_array_size(list));
    for (uint32_t i = 0; i < rope->dim / 2; i++) {
        out[i] = (float)json_number_value(json_array_get(list, i));
        if (!(out[i] >= 1e-3f && out[i] <= (float)MAX_FACTOR))
            return quire_fail(err, QUIRE_INVALID, "%s: %s: [%u] must be a number between 0.001 and %g", where, key, i,
                              MAX_FACTOR);
    }
    return QUIRE_OK;
}

/* Compares the longest text with max_position_embeddings, as transformers does: it ignores
 * original_max_position_embeddings here. Two dimensions would leave nothing to divide by. */
static int read_dynamic(const json_t *says, const char *where, uint32_t max_position, struct model_rope *rope,
                        struct quire_error *err)
{
    if (rope->dim <= 2)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: rope_type: dynamic needs heads of more than 2 numbers", where);
    rope->original_max = rope->longest = max_position;
    return required_f64(says, where, "factor", 1.0, MAX_FACTOR, &rope->factor, err);
}

/* max_position_embeddings is what the long factors are for. */
static int read_long(const json_t *config, const json_t *says, const char *where, uint32_t max_position,
                     struct model_rope *rope, struct quire_error *err)
{
    double attention = 0.0;
    int status = read_factors(says, where, "short_factor", rope, rope->short_factors, err);
    if (status == QUIRE_OK)
        status = read_factors(says, where, "long_factor", rope, rope->long_factors, err);
    if (status == QUIRE_OK)
        status = original_max(config, says, where, max_position, rope, err);
    rope->factor = max_position / rope->original_max;
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "factor", 1.0, MAX_FACTOR, &rope->factor, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "attention_factor", 1e-6, 1e3, &attention, err);
    if (attention > 0.0)
        rope->attention_factor = attention;
    else if (rope->factor > 1.0 && rope->original_max > 1.0)
        rope->attention_factor = __builtin_sqrt(1.0 + k_log64(rope->factor) / k_log64(rope->original_max));
    model_rope_choose(rope, max_position);
    return status;
}

/* The context that a scaling is meant to give, as vLLM derives it: YaRN's factor applies to the
 * original length whatever max_position_embeddings says, a linear or dynamic factor to
 * max_position_embeddings, and llama3 has it in max_position_embeddings already. */
static int scale_max_position(const char *where, uint32_t *max_position, const struct model_rope *rope,
                              struct quire_error *err)
{
    double scaled = *max_position;
    if (rope->kind == MODEL_ROPE_YARN)
        scaled = rope->original_max * rope->factor;
    else if (rope->kind == MODEL_ROPE_LINEAR || rope->kind == MODEL_ROPE_DYNAMIC)
        scaled = scaled * rope->factor;
    if (scaled > MODEL_MAX_POSITIONS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: factor: gives %.0f positions, but at most %u are supported",
                          where, scaled, MODEL_MAX_POSITIONS);
    *max_position = (uint32_t)scaled;
    return QUIRE_OK;
}

/* Phi-3's first files call it "su", and some "yarn". */
static bool is_long(const char *type)
{
    return strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0;
}

static int read_scaling(const json_t *config, const json_t *says, const char *where, bool partial,
                        uint32_t *max_position, struct model_rope *rope, struct quire_error *err)
{
    const char *type = "default";
    int status = quire_json_string(says, where, "type", &type, err);
    if (status == QUIRE_OK)
        status = quire_json_string(says, where, "rope_type", &type, err);
    if (status == QUIRE_OK)
        status = partial ? QUIRE_OK /* it is read */ : refuse_partial(says, where, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(says, where, "rope_theta", MIN_THETA, MAX_THETA, &rope->theta, err);
    if (status != QUIRE_OK)
        return status;

    if (strcmp(type, "default") == 0) {
        rope->kind = MODEL_ROPE_DEFAULT;
    } else if (partial && is_long(type)) {
        rope->kind = MODEL_ROPE_LONG;
        status = read_long(config, says, where, *max_position, rope, err);
    } else if (strcmp(type, "linear") == 0) {
        rope->kind = MODEL_ROPE_LINEAR;
        status = required_f64(says, where, "factor", 1.0, MAX_FACTOR, &rope->factor, err);
    } else if (strcmp(type, "llama3") == 0) {
        rope->kind = MODEL_ROPE_LLAMA3;
        status = read_llama3(config, says, where, *max_position, rope, err);
    } else if (strcmp(type, "dynamic") == 0) {
        rope->kind = MODEL_ROPE_DYNAMIC;
        status = read_dynamic(says, where, *max_position, rope, err);
    } else if (strcmp(type, "yarn") == 0) {
        rope->kind = MODEL_ROPE_YARN;
        status = read_yarn(config, says, where, *max_position, rope, err);
    } else {
        char shown[48];
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%s: rope_type: '%s' is not supported (default, linear, dynamic, llama3"
                          " and yarn are)",
                          where, model_shown(type, shown, sizeof shown));
    }
    if (status == QUIRE_OK)
        status = scale_max_position(where, max_position, rope, err);
    return status;
}

/* The parameters of one kind of layer, "full_attention" or "sliding_attention"; NULL: of all. */
struct kind {
    const char *name, *theta_key;
    double theta;
    bool is_partial;
    const struct model_rope_rule *rule;
};

/* Finds the object that says more than rope_theta: *says is NULL if the config has no such object. */
static int find_parameters(const json_t *config, const struct kind *kind, const char **where, const json_t **says,
                           struct quire_error *err)
{
    json_t *scaling = NULL, *parameters = NULL, *own = NULL;
    int status = quire_json_object(config, WHERE, "rope_scaling", &scaling, err);
    if (status == QUIRE_OK)
        status = quire_json_object(config, WHERE, "rope_parameters", &parameters, err);
    if (status != QUIRE_OK)
        return status;

    /* An empty object counts as absent. If both exist, transformers uses rope_scaling. */
    *where = WHERE ": rope_scaling";
    *says = scaling;
    if (!*says || json_object_size(*says) == 0) {
        *where = WHERE ": rope_parameters";
        *says = parameters;
    }
    if (!*says || json_object_size(*says) == 0) {
        *says = NULL;
        return QUIRE_OK;
    }
    if (json_object_get(*says, "full_attention") || json_object_get(*says, "sliding_attention")) {
        if (!kind->name)
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: one set of parameters for each layer type is not supported",
                              *where);
        status = quire_json_object(*says, *where, kind->name, &own, err);
        *says = own;
    } else if (kind->name && strcmp(kind->name, "sliding_attention") == 0) {
        *says = NULL; /* they are the other layers' */
    }
    return status;
}

/* partial_rotary_factor of config.json, else of the parameters. */
static int read_share(const json_t *config, const json_t *says, const char *where, const struct kind *kind,
                      struct model_rope *rope, struct quire_error *err)
{
    const bool is_outside = !says || json_object_get(config, "partial_rotary_factor");
    const double share = kind->rule->default_share > 0 ? kind->rule->default_share : 1.0;
    if (!kind->is_partial)
        return refuse_partial(config, WHERE, err);
    return read_partial(is_outside ? config : says, is_outside ? WHERE : where, share, rope, err);
}

static int read_rope(const json_t *config, const struct kind *kind, uint32_t *max_position, struct model_rope *rope,
                     struct quire_error *err)
{
    const char *where = NULL;
    const json_t *says = NULL;
    rope->kind = MODEL_ROPE_DEFAULT;
    rope->theta = kind->theta;
    rope->factor = 1.0;
    rope->low_freq = rope->high_freq = 0.0;
    rope->original_max = 0.0;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    rope->truncate = true;
    rope->attention_factor = 1.0;

    int status = quire_json_f64(config, WHERE, kind->theta_key, MIN_THETA, MAX_THETA, &rope->theta, err);
    if (status == QUIRE_OK)
        status = find_parameters(config, kind, &where, &says, err);
    if (status == QUIRE_OK)
        status = read_share(config, says, where, kind, rope, err);
    if (status == QUIRE_OK && !says && kind->rule->is_scaled)
        return quire_fail(err, QUIRE_UNSUPPORTED, WHERE ": rope_parameters: is missing, and so is rope_scaling");
    return status == QUIRE_OK && says ? read_scaling(config, says, where, kind->is_partial, max_position, rope, err)
                                      : status;
}

/* Layers with a window take rope 1. */
static int read_local(const json_t *config, const struct model_rope_rule *rule, struct model_config *model,
                      struct quire_error *err)
{
    const struct kind kind = {"sliding_attention", rule->local_theta > 0 ? "rope_local_base_freq" : "rope_theta",
                              rule->local_theta > 0 ? rule->local_theta : rule->theta, false, rule};
    uint32_t unused = model->max_position;
    for (uint32_t l = 0; l < model->n_layers; l++) {
        struct model_attention *a = &model->layers[l].blocks[0].attention;
        a->rope = a->mask == MASK_WINDOW;
    }
    model->ropes[1] = model->ropes[0];
    model->n_ropes = 2;
    return read_rope(config, &kind, &unused, &model->ropes[1], err);
}

/* Layers without RoPE take rope 1, which changes nothing. */
static int read_no_rope(const json_t *config, uint32_t interval, struct model_config *model, struct quire_error *err)
{
    static const char key[] = "no_rope_layers";
    json_t *has = NULL;
    int status = quire_json_u32(config, WHERE, "no_rope_layer_interval", 1, INT32_MAX, &interval, err);
    if (status == QUIRE_OK)
        status = quire_json_array(config, WHERE, key, &has, err);
    if (status != QUIRE_OK)
        return status;
    if (has && json_array_size(has) < model->n_layers)
        return quire_fail(err, QUIRE_INVALID, WHERE ": %s: has %zu entries, but num_hidden_layers is %u", key,
                          json_array_size(has), model->n_layers);
    for (uint32_t l = 0; l < model->n_layers; l++) {
        const json_t *item = json_array_get(has, l);
        const json_int_t says = item ? json_integer_value(item) : (l + 1) % interval != 0;
        if (item && (!json_is_integer(item) || says < 0 || says > 1))
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s: must hold 1 (the layer has RoPE) or 0", key);
        model->layers[l].blocks[0].attention.rope = says == 0;
    }
    model->ropes[1] = (struct model_rope){
        .kind = MODEL_ROPE_NONE, .dim = model->ropes[0].dim, .theta = 10000.0, .factor = 1.0, .attention_factor = 1.0};
    model->n_ropes = 2;
    return QUIRE_OK;
}

int model_ropes_config(const json_t *config, const struct model_rope_rule *rule, struct model_config *model,
                       struct quire_error *err)
{
    const struct kind kind = {rule->by_window ? "full_attention" : NULL, "rope_theta",
                              rule->theta > 0 ? rule->theta : 10000.0, rule->partial, rule};
    uint32_t max_position = model->max_position;
    int status = read_rope(config, &kind, &max_position, &model->ropes[0], err);
    if (status == QUIRE_OK && rule->by_window)
        return read_local(config, rule, model, err);
    model->max_position = max_position;
    return status == QUIRE_OK && rule->no_rope_interval ? read_no_rope(config, rule->no_rope_interval, model, err)
                                                        : status;
}
