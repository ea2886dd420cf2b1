#include "server/gateway/relay/relay_internal.h"
#include "server/gateway/route/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct candidates *c, uint32_t model)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->models[i] == model)
            return;
    if (c->n < RELAY_MAX_CANDIDATES)
        c->models[c->n++] = model;
}

static struct route_choice choose(const struct relay *r, const char *name, size_t n, const char *tenant, bool *found)
{
    struct route_choice choice = {0};
    const struct route_latencies latencies = {pool_latency_ms, r->pool};
    struct route_question q = {.asked = name,
                               .n_asked = n,
                               .tenant = tenant,
                               .prompt = r->body->prompt,
                               .n_prompt = r->body->n_prompt,
                               .request_id = r->request_id};
    q.user = unit_of(r, &q.n_user);
    *found = route_choose(r->pool->config, &q, &latencies, &choice);
    return choice;
}

/* The fallbacks of a model. One that is a route stands for the model that its rule chooses. */
static void add_fallbacks(struct relay *r, const struct gateway_model *m)
{
    for (uint32_t i = 0; i < m->n_fallback; i++) {
        bool found;
        const char *name = r->pool->config->models[m->fallback[i]].name;
        const struct route_choice choice = choose(r, name, strlen(name), NULL, &found);
        if (found)
            add(&r->candidates, choice.model);
    }
}

static void not_found(const struct relay *r, struct api_error *e)
{
    const struct gateway_config *config = r->pool->config;
    char names[240] = "";
    size_t n = 0, i = 0;
    for (; i < config->n_models && n + strlen(config->models[i].name) + 32 < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s'%s'", i ? ", " : "", config->models[i].name);
    if (i < config->n_models)
        snprintf(names + n, sizeof names - n, " and %zu more", config->n_models - i);
    api_fail(e, 404, "model", "model_not_found", "the model '%.200s' does not exist; served here: %s", r->body->asked,
             names);
}

/* False: out of memory. */
static bool take_part(struct relay *r, const struct route_choice *choice)
{
    r->part = malloc(sizeof *r->part);
    if (!r->part)
        return false;
    *r->part = (struct relay_part){
        .experiment = &r->pool->models[choice->experiment], .arm = choice->arm, .bucket = choice->bucket};
    return true;
}

bool candidates_find(struct relay *r, struct api_error *e)
{
    const struct gateway_config *config = r->pool->config;
    const char *tenant = ledger_tenant_name(r->account);
    bool found;
    const struct route_choice choice = choose(r, r->body->asked, r->body->n_asked, tenant, &found);
    if (!found) {
        not_found(r, e);
        return false;
    }
    const struct gateway_model *asked = r->body->n_asked > 0
                                            ? models_file_find(config, r->body->asked, r->body->n_asked)
                                            : &config->models[0];
    memcpy(r->candidates.why, choice.why, sizeof r->candidates.why);
    if (choice.arm != ROUTE_NO_ARM && !take_part(r, &choice)) {
        api_no_memory(e);
        return false;
    }
    add(&r->candidates, choice.model);
    add_fallbacks(r, &config->models[choice.model]);
    if (asked)
        add_fallbacks(r, asked);
    return true;
}

struct pool_model *candidates_model(const struct relay *r)
{
    return &r->pool->models[r->candidates.models[r->candidates.at]];
}

bool candidates_may(const struct relay *r)
{
    const struct gateway_price *p = &candidates_model(r)->model->price;
    return !r->is_over_budget || !p->is_set || (p->input == 0 && p->output == 0);
}

bool candidates_next(struct relay *r, const char *why)
{
    struct candidates *c = &r->candidates;
    const uint32_t at = c->at;
    struct pool_model *from = candidates_model(r);
    do {
        c->at++;
    } while (c->at < c->n && !candidates_may(r));
    if (c->at >= c->n) {
        c->at = at;
        return false;
    }
    from->counts->n_fallbacks++;
    snprintf(c->why, sizeof c->why, "fallback from %.48s: %.28s", from->model->name, why);
    r->tried = 0;
    return true;
}
