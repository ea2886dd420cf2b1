#include "server/gateway/route/route.h"

#include "server/gateway/experiment/assign.h"

#include <stdio.h>
#include <string.h>

struct asking {
    const struct gateway_config *config;
    const struct route_question *q;
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
    route_read(a->q->prompt ? a->q->prompt : "", a->q->n_prompt, &reading);
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

/* Experiments do not lead to each other (arms_check()), so that a request has one arm. */
static void choose_arm(const struct asking *a, uint32_t model)
{
    const struct gateway_experiment *e = a->config->models[model].route.experiment;
    const char *name = a->config->models[model].name, *id = a->q->request_id ? a->q->request_id : "";
    const bool by_user = !e->by_request && a->q->n_user > 0;
    const char *unit = by_user ? a->q->user : id;
    const size_t n = by_user ? a->q->n_user : strlen(id);
    a->out->experiment = model;
    a->out->arm = assign_arm(e, name, unit, n);
    a->out->bucket = assign_bucket(name, unit, n);
    a->out->model = e->arms[a->out->arm].model;
    snprintf(a->out->why, sizeof a->out->why, "arm: %.80s", e->arms[a->out->arm].name);
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

/* One step of a route. */
static void follow(const struct asking *a, const struct gateway_route *route)
{
    switch (route->kind) {
    case GATEWAY_ROUTE_NONE: break;
    case GATEWAY_ROUTE_COMPLEXITY: choose_by_complexity(a, route); break;
    case GATEWAY_ROUTE_LATENCY: choose_by_latency(a, route); break;
    case GATEWAY_ROUTE_EXPERIMENT: choose_arm(a, a->out->model); break;
    }
}

bool route_choose(const struct gateway_config *config, const struct route_question *q,
                  const struct route_latencies *latencies, struct route_choice *out)
{
    const struct asking a = {config, q, latencies, out};
    const struct gateway_model *model = q->n_asked ? models_file_find(config, q->asked, q->n_asked) : config->models;
    if (!model)
        return false;
    *out = (struct route_choice){.model = (uint32_t)(model - config->models), .arm = ROUTE_NO_ARM};
    const bool is_name = !q->n_asked ||
                         (strlen(model->name) == q->n_asked && memcmp(model->name, q->asked, q->n_asked) == 0);
    snprintf(out->why, sizeof out->why, "%s", is_name ? "name" : "alias");
    const struct gateway_override *override = find_override(config, q->tenant, out->model);
    if (override) {
        out->model = override->model;
        snprintf(out->why, sizeof out->why, "override");
    }
    /* Routes never lead back (models_file.h), so that this ends with a model that has targets. */
    while (config->models[out->model].route.kind != GATEWAY_ROUTE_NONE)
        follow(&a, &config->models[out->model].route);
    return true;
}
