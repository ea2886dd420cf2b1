#include "server/gateway/experiment/variables.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAMES 8

/* ---- options of an engine ------------------------------------------------------------------- */

/* An option in the words of a target: "--name value", "--name" or "--no-name". */
struct option {
    char name[64]; /* with dashes, without "no-" */
    const char *value; /* "true" or "false" for a flag */
};

/* Reads the option at *at and moves on. Returns false at the end. */
static bool next_option(const struct gateway_target *t, size_t *at, struct option *out)
{
    if (*at >= t->n_options)
        return false;
    const char *word = t->options[(*at)++];
    word += strncmp(word, "--", 2) == 0 ? 2 : 0;
    const bool has_value = *at < t->n_options && strncmp(t->options[*at], "--", 2) != 0;
    const bool is_off = !has_value && strncmp(word, "no-", 3) == 0;
    snprintf(out->name, sizeof out->name, "%s", is_off ? word + 3 : word);
    for (char *c = out->name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    out->value = has_value ? t->options[(*at)++] : is_off ? "false" : "true";
    return true;
}

/* The value of the k-th use of an option; NULL: it is used less often. */
static const char *value_of(const struct gateway_target *t, const char *name, size_t k)
{
    struct option o;
    for (size_t at = 0; next_option(t, &at, &o);)
        if (strcmp(o.name, name) == 0 && k-- == 0)
            return o.value;
    return NULL;
}

static bool is_equal_option(const struct gateway_target *a, const struct gateway_target *b, const char *name)
{
    for (size_t k = 0;; k++) {
        const char *left = value_of(a, name, k), *right = value_of(b, name, k);
        if (!left || !right)
            return left == right;
        if (strcmp(left, right) != 0)
            return false;
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

struct names {
    struct buffer *out; /* NULL: only count */
    uint32_t n;
};

static void differs(struct names *o, const char *prefix, const char *group, const char *name)
{
    const char *const parts[] = {o->n > 0 ? ", " : "", prefix, group, name};
    for (size_t i = 0; i < 4 && o->out && o->n < MAX_NAMES; i++)
        buffer_append(o->out, parts[i], strlen(parts[i]));
    o->n++;
}

static void end_names(const struct names *o)
{
    char more[32];
    if (!o->out || o->n <= MAX_NAMES)
        return;
    const int n = snprintf(more, sizeof more, " and %u more", o->n - MAX_NAMES);
    buffer_append(o->out, more, (size_t)n);
}

/* ---- a comparison --------------------------------------------------------------------------- */

/* Options of a, and those of b that a does not have; each name once. */
static void compare_options(struct names *o, const char *prefix, const struct gateway_target *a,
                            const struct gateway_target *b)
{
    const struct gateway_target *const sides[] = {a, b};
    struct option option;
    for (int side = 0; side < 2; side++)
        for (size_t at = 0, begin = 0; next_option(sides[side], &at, &option); begin = at) {
            struct option other;
            bool is_known = side == 1 && value_of(a, option.name, 0);
            for (size_t before = 0; before < begin && !is_known && next_option(sides[side], &before, &other);)
                is_known = strcmp(other.name, option.name) == 0;
            if (!is_known && !is_equal_option(a, b, option.name))
                differs(o, prefix, "options.", option.name);
        }
}

/* The name that an upstream server receives. */
static const char *upstream_model(const struct gateway_model *m, const struct gateway_target *t)
{
    return t->upstream_model ? t->upstream_model : m->name;
}

static void compare_targets(struct names *o, const char *prefix, const struct gateway_model *a,
                            const struct gateway_model *b, size_t i)
{
    static const char *const places[] = {
        [GATEWAY_TARGET_MODEL] = "model", [GATEWAY_TARGET_ENGINE] = "engine", [GATEWAY_TARGET_URL] = "url"};
    const struct gateway_target *left = &a->targets[i], *right = &b->targets[i];
    if (left->kind != right->kind) {
        differs(o, prefix, "", "kind of target");
        return;
    }
    if (strcmp(left->place, right->place) != 0)
        differs(o, prefix, "", places[left->kind]);
    if (left->kind == GATEWAY_TARGET_URL && strcmp(upstream_model(a, left), upstream_model(b, right)) != 0)
        differs(o, prefix, "", "model");
    if (left->max_concurrent != right->max_concurrent)
        differs(o, prefix, "", "max_concurrent");
    if (left->weight != right->weight && a->n_targets > 1)
        differs(o, prefix, "", "weight");
    compare_options(o, prefix, left, right);
}

static void compare_models(struct names *o, const struct gateway_model *a, const struct gateway_model *b)
{
    const size_t n = a->n_targets < b->n_targets ? a->n_targets : b->n_targets;
    char prefix[32] = "";
    if (a->route.kind != GATEWAY_ROUTE_NONE || b->route.kind != GATEWAY_ROUTE_NONE) {
        differs(o, "", "", "route");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (n > 1)
            snprintf(prefix, sizeof prefix, "target %zu: ", i + 1);
        compare_targets(o, prefix, a, b, i);
    }
    if (a->n_targets != b->n_targets)
        differs(o, "", "", "number of targets");
    if (a->max_tokens != b->max_tokens)
        differs(o, "", "", "max_tokens");
    if (a->batching.max_batch_size != b->batching.max_batch_size || a->batching.max_wait_ms != b->batching.max_wait_ms)
        differs(o, "", "", "batch");
    if (a->n_fallback != b->n_fallback || memcmp(a->fallback, b->fallback, a->n_fallback * sizeof a->fallback[0]) != 0)
        differs(o, "", "", "fallback");
}

uint32_t variables_differ(const struct gateway_config *config, uint32_t model, uint32_t arm, struct buffer *names)
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    struct names o = {.out = names};
    if (e->arms[0].model != e->arms[arm].model)
        compare_models(&o, &config->models[e->arms[0].model], &config->models[e->arms[arm].model]);
    end_names(&o);
    return o.n;
}

bool variables_warn(const struct gateway_config *config, uint32_t model, uint32_t arm,
                    char out[VARIABLES_WARNING_BYTES])
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    struct buffer names = {0};
    const uint32_t n = variables_differ(config, model, arm, &names);
    if (n > 1)
        snprintf(
            out, VARIABLES_WARNING_BYTES,
            "model %.128s: arm %.128s: %u variables differ from arm %.128s: %.250s; a difference in the results has "
            "no single cause",
            config->models[model].name, e->arms[arm].name, n, e->arms[0].name, buffer_text(&names) ? names.data : "");
    buffer_free(&names);
    return n > 1;
}

/* ---- identity ------------------------------------------------------------------------------- */

static void add_text(struct quire_sha256_state *s, const char *text)
{
    quire_sha256_add(s, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_number(struct quire_sha256_state *s, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    add_text(s, text);
}

static void add_target(struct quire_sha256_state *s, const struct gateway_model *m, const struct gateway_target *t)
{
    add_number(s, t->kind);
    add_text(s, t->place);
    add_text(s, t->kind == GATEWAY_TARGET_URL ? upstream_model(m, t) : "");
    add_number(s, m->n_targets > 1 ? t->weight : 1);
    add_number(s, t->max_concurrent);
    add_number(s, t->n_options);
    for (size_t i = 0; i < t->n_options; i++)
        add_text(s, t->options[i]);
}

/* The models that arms lead to, each once, in the order in which they are found. */
struct reached {
    const struct gateway_config *config;
    uint32_t models[GATEWAY_MAX_MODELS];
    uint32_t n;
    bool is_known[GATEWAY_MAX_MODELS];
};

static void add_model(struct quire_sha256_state *s, struct reached *r, uint32_t model)
{
    add_text(s, r->config->models[model].name);
    if (!r->is_known[model])
        r->models[r->n++] = model;
    r->is_known[model] = true;
}

static void add_settings(struct quire_sha256_state *s, struct reached *r, const struct gateway_model *m)
{
    const struct gateway_route *route = &m->route;
    add_number(s, route->kind);
    add_number(s, m->max_tokens);
    add_number(s, m->batching.max_batch_size);
    add_number(s, m->batching.max_wait_ms);
    add_number(s, m->n_targets);
    for (size_t i = 0; i < m->n_targets; i++)
        add_target(s, m, &m->targets[i]);
    if (route->kind == GATEWAY_ROUTE_COMPLEXITY) {
        add_model(s, r, route->simple);
        add_model(s, r, route->moderate);
        add_model(s, r, route->complex);
    }
    add_number(s, route->n_among);
    for (uint32_t i = 0; i < route->n_among; i++)
        add_model(s, r, route->among[i]);
    for (uint32_t i = 0; route->experiment && i < route->experiment->n_arms; i++) /* of a fallback */
        add_model(s, r, route->experiment->arms[i].model);
    add_number(s, m->n_fallback);
    for (uint32_t i = 0; i < m->n_fallback; i++)
        add_model(s, r, m->fallback[i]);
}

void variables_run(const struct gateway_config *config, uint32_t model, char out[VARIABLES_RUN_BYTES])
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    struct reached r = {.config = config};
    struct quire_sha256_state s;
    char hex[65];
    quire_sha256_begin(&s);
    add_text(&s, config->models[model].name);
    add_number(&s, e->by_request);
    add_number(&s, e->n_arms);
    for (uint32_t i = 0; i < e->n_arms; i++) {
        add_text(&s, e->arms[i].name);
        add_number(&s, e->arms[i].weight);
        add_model(&s, &r, e->arms[i].model);
    }
    for (uint32_t i = 0; i < r.n; i++)
        add_settings(&s, &r, &config->models[r.models[i]]);
    const struct key256 key = quire_sha256_now(&s);
    quire_key256_hex(&key, hex);
    snprintf(out, VARIABLES_RUN_BYTES, "%.16s", hex);
}
