#include "server/gateway/file/routes.h"

#include "server/gateway/file/arms.h"
#include "server/gateway/file/reference.h"

#include <stdio.h>
#include <string.h>

#define MAX_OVERRIDES 4096
#define MAX_SUCCESSORS (2 * GATEWAY_MAX_FALLBACKS + GATEWAY_MAX_ARMS + 3)

/* ---- references ----------------------------------------------------------------------------- */

static int read_references(const struct fields *f, const struct yaml_node *map, const char *field,
                           const struct gateway_config *config, uint32_t out[GATEWAY_MAX_FALLBACKS], uint32_t *n_out)
{
    const struct yaml_node *list = NULL;
    int status = fields_list(f, map, field, GATEWAY_MAX_FALLBACKS, &list);
    uint32_t n = 0;
    for (const struct yaml_node *node = list ? list->first : NULL; node && status == QUIRE_OK; node = node->next) {
        status = reference_read(f, node, field, config, &out[n]);
        for (uint32_t i = 0; i < n && status == QUIRE_OK; i++)
            if (out[i] == out[n])
                status = fields_wrong(f, node, field, "\"%s\" stands here twice", node->text);
        n++;
    }
    *n_out = n;
    return status;
}

/* ---- a route -------------------------------------------------------------------------------- */

static int refuse(const struct fields *f, const struct yaml_node *map, const char *const *names, const char *why)
{
    for (; *names; names++) {
        const struct yaml_node *node = yaml_get(map, *names);
        if (node)
            return fields_wrong(f, node, *names, "%s", why);
    }
    return QUIRE_OK;
}

static int read_complexity(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                           struct gateway_route *route)
{
    static const char *const names[] = {"simple", "moderate", "complex"};
    uint32_t *const out[] = {&route->simple, &route->moderate, &route->complex};
    for (size_t i = 0; i < 3; i++) {
        const struct yaml_node *node = yaml_get(map, names[i]);
        if (!node)
            return fields_wrong(f, yaml_get(map, "route"), names[i],
                                "is missing: the route has a model for each of "
                                "simple, moderate and complex");
        const int status = reference_read(f, node, names[i], config, out[i]);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static int read_kind(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                     struct gateway_route *route)
{
    switch (route->kind) {
    case GATEWAY_ROUTE_COMPLEXITY: return read_complexity(f, map, config, route);
    case GATEWAY_ROUTE_EXPERIMENT: return arms_read(f, map, config, route);
    case GATEWAY_ROUTE_LATENCY:
        if (!yaml_get(map, "among"))
            return fields_wrong(f, yaml_get(map, "route"), "among",
                                "is missing: the models that the route chooses from");
        return read_references(f, map, "among", config, route->among, &route->n_among);
    case GATEWAY_ROUTE_NONE: break;
    }
    return QUIRE_OK;
}

static int read_route(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                      struct gateway_model *model)
{
    static const struct {
        const char *name;
        enum gateway_route_kind kind;
        const char *own[4]; /* fields of this route alone */
        const char *why;
    } kinds[] = {
        {"complexity", GATEWAY_ROUTE_COMPLEXITY, {"simple", "moderate", "complex"}, "goes with route: complexity"},
        {"latency", GATEWAY_ROUTE_LATENCY, {"among"}, "goes with route: latency"},
        {"experiment", GATEWAY_ROUTE_EXPERIMENT, {"arms", "by", "metric"}, "goes with route: experiment"},
    };
    static const char *const of_models[] = {"targets",
                                            "tokenizer",
                                            "price_per_1k",
                                            "cost_per_1k_input",
                                            "cost_per_1k_output",
                                            "avg_latency_ms",
                                            "max_tokens",
                                            "batch",
                                            NULL};
    const char *kind = NULL;
    int status = fields_text(f, map, "route", &kind);
    if (status != QUIRE_OK)
        return status;
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, kind) == 0)
            model->route.kind = kinds[i].kind;
    if (kind && model->route.kind == GATEWAY_ROUTE_NONE)
        return fields_wrong(f, yaml_get(map, "route"), "route", "\"%.*s\" must be complexity, latency or experiment",
                            yaml_shown(kind), kind);
    if (kind && (status = refuse(f, map, of_models, "does not go with route: the models that it chooses have it")))
        return status;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind != model->route.kind && (status = refuse(f, map, kinds[i].own, kinds[i].why)))
            return status;
    return read_kind(f, map, config, &model->route);
}

int routes_read(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                struct gateway_model *model)
{
    const int status = read_route(f, map, config, model);
    return status == QUIRE_OK ? read_references(f, map, "fallback", config, model->fallback, &model->n_fallback)
                              : status;
}

/* ---- circles -------------------------------------------------------------------------------- */

struct walk {
    const struct gateway_config *config;
    uint32_t path[GATEWAY_MAX_MODELS + 1]; /* from the first model to the present one */
    size_t n;
    bool is_done[GATEWAY_MAX_MODELS]; /* nothing that it refers to leads back */
};

/* The models that one may stand for. */
static size_t successors(const struct gateway_model *m, uint32_t out[MAX_SUCCESSORS])
{
    size_t n = 0;
    if (m->route.kind == GATEWAY_ROUTE_COMPLEXITY) {
        out[n++] = m->route.simple;
        out[n++] = m->route.moderate;
        out[n++] = m->route.complex;
    }
    for (uint32_t i = 0; i < m->route.n_among; i++)
        out[n++] = m->route.among[i];
    for (uint32_t i = 0; m->route.experiment && i < m->route.experiment->n_arms; i++)
        out[n++] = m->route.experiment->arms[i].model;
    for (uint32_t i = 0; i < m->n_fallback; i++)
        out[n++] = m->fallback[i];
    return n;
}

/* True: the path ends with a circle. As deep as there are models. */
static bool walk(struct walk *w, uint32_t model)
{
    uint32_t next[MAX_SUCCESSORS];
    bool is_circle = false;
    for (size_t i = 0; i < w->n; i++)
        is_circle |= w->path[i] == model;
    w->path[w->n++] = model;
    if (is_circle)
        return true;
    const size_t n = w->is_done[model] ? 0 : successors(&w->config->models[model], next);
    for (size_t i = 0; i < n; i++)
        if (walk(w, next[i]))
            return true;
    w->is_done[model] = true;
    w->n--;
    return false;
}

/* "a -> b -> a", or its beginning. */
static void write_circle(const struct walk *w, char out[256])
{
    size_t from = 0, n = 0;
    while (w->path[from] != w->path[w->n - 1])
        from++;
    for (size_t i = from; i < w->n && n < 200; i++)
        n += (size_t)snprintf(out + n, 256 - n, "%s%.40s", i > from ? " -> " : "", w->config->models[w->path[i]].name);
}

int routes_check_circles(const struct fields *f, const struct yaml_node *maps, const struct gateway_config *config)
{
    struct walk w = {.config = config};
    char circle[256] = "";
    for (uint32_t i = 0; i < config->n_models; i++) {
        struct fields at = *f;
        const struct yaml_node *map = maps->first;
        if (!walk(&w, i))
            continue;
        write_circle(&w, circle);
        for (uint32_t j = w.path[w.n - 1]; j > 0; j--)
            map = map->next;
        const struct yaml_node *fallback = yaml_get(map, "fallback"), *route = yaml_get(map, "route");
        const struct yaml_node *node = fallback ? fallback : route;
        snprintf(at.where, sizeof at.where, "model %s", map->key);
        return fields_wrong(&at, node, node->key, "leads back to a model: %s", circle);
    }
    return QUIRE_OK;
}

/* ---- overrides ------------------------------------------------------------------------------ */

static int read_tenant(struct fields *f, const struct yaml_node *tenant, const struct gateway_config *config,
                       struct gateway_override *out, size_t *n)
{
    const struct yaml_node name = {.kind = YAML_SCALAR,
                                   .line = tenant->key_line,
                                   .column = tenant->key_column,
                                   .text = tenant->key,
                                   .n = strlen(tenant->key)};
    const char *text;
    int status = fields_name(f, &name, NULL, &text);
    if (status == QUIRE_OK && tenant->kind != YAML_MAPPING)
        status = fields_wrong(f, tenant, text, "must be a mapping of models (asked: instead)");
    if (status != QUIRE_OK)
        return status;
    snprintf(f->where, sizeof f->where, "overrides of %s", text);
    for (const struct yaml_node *node = tenant->first; node && status == QUIRE_OK; node = node->next, (*n)++) {
        const struct yaml_node asked = {.kind = YAML_SCALAR,
                                        .line = node->key_line,
                                        .column = node->key_column,
                                        .text = node->key,
                                        .n = strlen(node->key)};
        uint32_t known;
        out[*n].tenant = arena_text(f->arena, text, strlen(text));
        out[*n].asked = arena_text(f->arena, node->key, strlen(node->key));
        if (!out[*n].tenant || !out[*n].asked)
            return fields_no_memory(f);
        status = reference_read(f, &asked, NULL, config, &known);
        if (status == QUIRE_OK)
            status = reference_read(f, node, node->key, config, &out[*n].model);
    }
    return status;
}

int routes_read_overrides(const struct fields *f, const struct yaml_node *root, struct gateway_config *config)
{
    const struct yaml_node *overrides = yaml_get(root, "overrides");
    size_t n = 0;
    if (!overrides)
        return QUIRE_OK;
    if (overrides->kind != YAML_MAPPING)
        return fields_wrong(f, overrides, "overrides", "must be a mapping of tenants");
    for (const struct yaml_node *tenant = overrides->first; tenant; tenant = tenant->next)
        n += tenant->kind == YAML_MAPPING ? tenant->n : 0;
    if (n > MAX_OVERRIDES)
        return fields_wrong(f, overrides, "overrides", "has more than %d entries", MAX_OVERRIDES);
    struct gateway_override *out = arena_new(f->arena, n * sizeof *out);
    if (!out)
        return fields_no_memory(f);
    config->overrides = out;
    for (const struct yaml_node *tenant = overrides->first; tenant; tenant = tenant->next) {
        struct fields at = *f;
        snprintf(at.where, sizeof at.where, "overrides");
        const int status = read_tenant(&at, tenant, config, out, &config->n_overrides);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}
