#include "server/gateway/route/route.h"

#include <stdio.h>
#include <string.h>

struct asking {
    const struct gateway_config *config;
    const char *prompt;
    size_t n_prompt;
    const struct route_latencies *latencies;
    struct route_choice *out;
};

/* ---- rules ---------------------------------------------------------------------------------- */

static void choose_by_complexity(const struct asking *a, const struct gateway_route *route)
{
    static const char *const names[] = {
        [ROUTE_SIMPLE] = "simple", [ROUTE_MODERATE] = "moderate", [ROUTE_COMPLEX] = "complex"};
    const uint32_t models[] = {
        [ROUTE_SIMPLE] = route->simple, [ROUTE_MODERATE] = route->moderate, [ROUTE_COMPLEX] = route->complex};
    struct route_reading reading;
    route_read(a->prompt, a->n_prompt, &reading);
    a->out->model = models[reading.complexity];
    const bool has = reading.indicator != NULL;
    snprintf(a->out->why, sizeof a->out->why, "complexity: %s (%u word%s%s%s%s)", names[reading.complexity],
             reading.n_words, reading.n_words == 1 ? "" : "s", has ? ", \"" : "", has ? reading.indicator : "",
             has ? "\"" : "");
}

/* Measured, else what the file expects; 0: unknown. */
static uint32_t latency_of(const struct asking *a, uint32_t model)
{
    const struct route_latencies *l = a->latencies;
    const uint32_t measured = l && l->of ? l->of(l->context, model) : 0;
    return measured ? measured : a->config->models[model].avg_latency_ms;
}

/* A model without a latency is tried first, so that it is measured. */
static void choose_by_latency(const struct asking *a, const struct gateway_route *route)
{
    uint32_t best = route->among[0], least = latency_of(a, best);
    for (uint32_t i = 1; i < route->n_among && least > 0; i++) {
        const uint32_t ms = latency_of(a, route->among[i]);
        if (ms < least) {
            best = route->among[i];
            least = ms;
        }
    }
    a->out->model = best;
    if (least)
        snprintf(a->out->why, sizeof a->out->why, "latency: %u ms", least);
    else
        snprintf(a->out->why, sizeof a->out->why, "latency: not measured yet");
}

/* ---- the choice ----------------------------------------------------------------------------- */

static const struct gateway_override *find_override(const struct gateway_config *config, const char *tenant,
                                                    uint32_t model)
{
    for (size_t i = 0; tenant && i < config->n_overrides; i++) {
        const struct gateway_override *o = &config->overrides[i];
        if (strcmp(o->tenant, tenant) != 0)
            continue;
        const struct gateway_model *of = models_file_find(config, o->asked, strlen(o->asked));
        if (of == &config->models[model])
            return o;
    }
    return NULL;
}

bool route_choose(const struct gateway_config *config, const char *asked, size_t n_asked, const char *tenant,
                  const char *prompt, size_t n_prompt, const struct route_latencies *latencies,
                  struct route_choice *out)
{
    const struct asking a = {config, prompt, n_prompt, latencies, out};
    const struct gateway_model *model = asked && n_asked ? models_file_find(config, asked, n_asked) : config->models;
    if (!model)
        return false;
    out->model = (uint32_t)(model - config->models);
    const bool is_name = !asked || !n_asked ||
                         (strlen(model->name) == n_asked && memcmp(model->name, asked, n_asked) == 0);
    snprintf(out->why, sizeof out->why, "%s", is_name ? "name" : "alias");
    const struct gateway_override *override = find_override(config, tenant, out->model);
    if (override) {
        out->model = override->model;
        snprintf(out->why, sizeof out->why, "override");
    }
    /* Routes never lead back (models_file.h), so that this ends with a model that has targets. */
    for (;;) {
        const struct gateway_route *route = &config->models[out->model].route;
        if (route->kind == GATEWAY_ROUTE_NONE)
            return true;
        if (route->kind == GATEWAY_ROUTE_COMPLEXITY)
            choose_by_complexity(&a, route);
        else
            choose_by_latency(&a, route);
    }
}
