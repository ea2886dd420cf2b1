#include "server/gateway/file/arms.h"

#include "server/gateway/file/reference.h"

#include <stdio.h>
#include <string.h>

#define MAX_WEIGHT 1000

const struct gateway_metric_name gateway_metrics[GATEWAY_N_METRICS] = {
    [GATEWAY_ERRORS] = {"errors", "requests"},
    [GATEWAY_CANCELLED] = {"cancelled", "requests"},
    [GATEWAY_TTFT] = {"ttft", "us"},
    [GATEWAY_LATENCY] = {"latency", "us"},
    [GATEWAY_OUTPUT_TOKENS] = {"output_tokens", "tokens"},
    [GATEWAY_CACHED_TOKENS] = {"cached_tokens", "tokens"},
    [GATEWAY_CACHE_HITS] = {"cache_hits", "requests"},
    [GATEWAY_COST] = {"cost", "picodollars"},
};

/* ---- an experiment -------------------------------------------------------------------------- */

static int read_by(const struct fields *f, const struct yaml_node *map, struct gateway_experiment *e)
{
    const char *by = NULL;
    const int status = fields_text(f, map, "by", &by);
    if (status != QUIRE_OK)
        return status;
    e->by_request = by && strcmp(by, "request") == 0;
    if (by && !e->by_request && strcmp(by, "user") != 0)
        return fields_wrong(f, yaml_get(map, "by"), "by", "\"%.*s\" must be user or request", yaml_shown(by), by);
    return QUIRE_OK;
}

static int read_metric(const struct fields *f, const struct yaml_node *map, struct gateway_experiment *e)
{
    const char *name = NULL;
    const int status = fields_text(f, map, "metric", &name);
    if (status != QUIRE_OK || !name)
        return status;
    for (int i = 0; i < GATEWAY_N_METRICS; i++)
        if (strcmp(gateway_metrics[i].name, name) == 0) {
            e->metric = (enum gateway_metric)i;
            e->has_metric = true;
            return QUIRE_OK;
        }
    return fields_wrong(
        f, yaml_get(map, "metric"), "metric",
        "\"%.*s\" must be errors, cancelled, ttft, latency, output_tokens, cached_tokens, cache_hits or "
        "cost",
        yaml_shown(name), name);
}

static int read_arm(const struct fields *f, const struct yaml_node *node, const struct gateway_config *config,
                    struct gateway_arm *arm)
{
    static const char *const known[] = {"model", "weight"};
    const struct yaml_node name = {.kind = YAML_SCALAR,
                                   .line = node->key_line,
                                   .column = node->key_column,
                                   .text = node->key,
                                   .n = strlen(node->key)};
    struct fields at = *f;
    int status = fields_name(f, &name, "arms", &arm->name);
    if (status != QUIRE_OK)
        return status;
    snprintf(at.where, sizeof at.where, "%.100s: arm %.60s", f->where, arm->name);
    arm->weight = 1;
    if ((status = fields_check(&at, node, NULL, known, 2)) ||
        (status = fields_u32(&at, node, "weight", 1, MAX_WEIGHT, &arm->weight)))
        return status;
    const struct yaml_node *model = yaml_get(node, "model");
    if (!model)
        return fields_wrong(&at, node, "model", "is missing: the model that answers the requests of this arm");
    arm->line = model->line;
    arm->column = model->column;
    return reference_read(&at, model, "model", config, &arm->model);
}

int arms_read(const struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
              struct gateway_route *route)
{
    const struct yaml_node *list = yaml_get(map, "arms");
    if (!list)
        return fields_wrong(f, yaml_get(map, "route"), "arms", "is missing: the models that the experiment compares");
    if (list->kind != YAML_MAPPING || list->n < 2 || list->n > GATEWAY_MAX_ARMS)
        return fields_wrong(f, list, "arms", "must be a mapping of 2 to %d arms (name: {model: …, weight: 1})",
                            GATEWAY_MAX_ARMS);
    struct gateway_experiment *e = arena_new(f->arena, sizeof *e);
    struct gateway_arm *arms = arena_new(f->arena, list->n * sizeof *arms);
    if (!e || !arms)
        return fields_no_memory(f);
    int status = read_by(f, map, e);
    if (status == QUIRE_OK)
        status = read_metric(f, map, e);
    for (const struct yaml_node *node = list->first; node && status == QUIRE_OK; node = node->next)
        status = read_arm(f, node, config, &arms[e->n_arms++]);
    e->arms = arms;
    route->experiment = e;
    return status;
}

/* ---- one arm for a request ------------------------------------------------------------------ */

/* Whether a model is, or its routes lead to, an experiment. Routes have no circle, and is_done bounds the walk. */
static bool leads_to_experiment(const struct gateway_config *config, uint32_t model, bool *is_done)
{
    const struct gateway_route *r = &config->models[model].route;
    bool found = r->kind == GATEWAY_ROUTE_EXPERIMENT;
    if (is_done[model] || found)
        return found;
    is_done[model] = true;
    if (r->kind == GATEWAY_ROUTE_COMPLEXITY)
        found = leads_to_experiment(config, r->simple, is_done) || leads_to_experiment(config, r->moderate, is_done) ||
                leads_to_experiment(config, r->complex, is_done);
    for (uint32_t i = 0; i < r->n_among && !found; i++)
        found = leads_to_experiment(config, r->among[i], is_done);
    return found;
}

int arms_check(const struct fields *f, const struct yaml_node *maps, const struct gateway_config *config)
{
    const struct yaml_node *map = maps->first;
    for (size_t i = 0; i < config->n_models && map; i++, map = map->next) {
        const struct gateway_experiment *e = config->models[i].route.experiment;
        bool is_done[GATEWAY_MAX_MODELS] = {false};
        for (uint32_t k = 0; e && k < e->n_arms; k++) {
            struct fields at = *f;
            const struct gateway_arm *arm = &e->arms[k];
            if (!leads_to_experiment(config, arm->model, is_done))
                continue;
            snprintf(at.where, sizeof at.where, "model %.100s: arm %.60s", map->key, arm->name);
            const struct yaml_node *model = yaml_get(yaml_get(yaml_get(map, "arms"), arm->name), "model");
            return fields_wrong(&at, model, "model", "\"%s\" is or leads to an experiment, and a request has one arm",
                                config->models[arm->model].name);
        }
    }
    return QUIRE_OK;
}
