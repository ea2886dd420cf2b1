#include "server/gateway/pool.h"

#include "server/gateway/experiment/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const pool_result_names[POOL_N_RESULTS] = {
    [POOL_OK] = "ok",       [POOL_CLIENT_ERROR] = "client_error", [POOL_OVERLOADED] = "overloaded",
    [POOL_ERROR] = "error", [POOL_CANCELLED] = "cancelled",
};
const double pool_buckets[POOL_N_BUCKETS] = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};

/* ---- targets -------------------------------------------------------------------------------- */

static char *key_of(const struct gateway_model *m, const struct gateway_target *t)
{
    const size_t n = strlen(m->name) + strlen(t->place) + strlen(t->name) + 8;
    char *key = malloc(n);
    if (key)
        snprintf(key, n, "%s\n%d\n%s\n%s", m->name, (int)t->kind, t->place, t->name);
    return key;
}

static struct pool_target *find_target(const struct pool *before, const char *key)
{
    for (size_t i = 0; before && i < before->config->n_models; i++)
        for (size_t k = 0; k < before->config->models[i].n_targets; k++)
            if (strcmp(before->models[i].targets[k]->key, key) == 0)
                return before->models[i].targets[k];
    return NULL;
}

static struct pool_target *open_target(const struct gateway_model *m, const struct gateway_target *settings,
                                       const struct pool *before)
{
    char *key = key_of(m, settings);
    struct pool_target *t = key ? find_target(before, key) : NULL;
    if (t) {
        free(key);
        t->state.weight = settings->weight ? settings->weight : 1;
        t->state.max_concurrent = settings->max_concurrent;
        return pool_target_hold(t);
    }
    t = key ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        free(key);
        return NULL;
    }
    target_init(&t->state, settings->weight, settings->max_concurrent);
    t->key = key;
    t->n_holders = 1;
    return t;
}

struct pool_target *pool_target_hold(struct pool_target *t)
{
    t->n_holders++;
    return t;
}

void pool_target_release(struct pool_target *t)
{
    if (!t || --t->n_holders > 0)
        return;
    free(t->key);
    free(t);
}

/* ---- counters ------------------------------------------------------------------------------- */

static struct pool_counts *open_counts(const char *model, const struct pool *before)
{
    for (size_t i = 0; before && i < before->config->n_models; i++)
        if (strcmp(before->models[i].counts->model, model) == 0) {
            before->models[i].counts->n_holders++;
            return before->models[i].counts;
        }
    struct pool_counts *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->n_holders = 1;
    c->model = strdup(model);
    if (c->model)
        return c;
    free(c);
    return NULL;
}

static void release_counts(struct pool_counts *c)
{
    if (!c || --c->n_holders > 0)
        return;
    free(c->model);
    free(c);
}

/* ---- experiments ---------------------------------------------------------------------------- */

/* Its statistics continue while its run is the same. */
static struct trial *open_trial(const struct gateway_config *config, size_t model, const struct pool *before)
{
    char run[VARIABLES_RUN_BYTES];
    variables_run(config, (uint32_t)model, run);
    for (size_t i = 0; before && i < before->config->n_models; i++)
        if (before->models[i].trial && strcmp(before->models[i].trial->run, run) == 0)
            return trial_hold(before->models[i].trial);
    return trial_new(config, (uint32_t)model);
}

void pool_count(struct pool_counts *c, enum pool_result result, double seconds)
{
    c->n_requests[result]++;
    if (result != POOL_OK)
        return;
    size_t i = 0;
    while (i < POOL_N_BUCKETS && seconds > pool_buckets[i])
        i++;
    c->buckets[i]++;
    c->seconds += seconds;
}

/* ---- the pool ------------------------------------------------------------------------------- */

static bool open_model(struct pool_model *m, const struct pool *before)
{
    const size_t n = m->model->n_targets;
    m->counts = open_counts(m->model->name, before);
    m->targets = calloc(n + 1, sizeof *m->targets);
    m->states = calloc(n + 1, sizeof *m->states);
    if (!m->counts || !m->targets || !m->states)
        return false;
    for (size_t i = 0; i < n; i++) {
        m->targets[i] = open_target(m->model, &m->model->targets[i], before);
        if (!m->targets[i])
            return false;
        m->states[i] = &m->targets[i]->state;
    }
    return true;
}

int pool_open(const struct gateway_config *config, const struct pool *before, struct pool **out,
              struct quire_error *err)
{
    struct pool *p = *out = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    p->n_holders = 1;
    p->config = models_file_hold(config);
    p->models = calloc(config->n_models, sizeof *p->models);
    bool good = p->models != NULL;
    for (size_t i = 0; good && i < config->n_models; i++) {
        p->models[i].model = &config->models[i];
        good = open_model(&p->models[i], before);
        if (!good || config->models[i].route.kind != GATEWAY_ROUTE_EXPERIMENT)
            continue;
        p->models[i].trial = open_trial(config, i, before);
        good = p->models[i].trial != NULL;
    }
    if (good)
        return QUIRE_OK;
    pool_release(p);
    *out = NULL;
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

struct pool *pool_hold(struct pool *p)
{
    p->n_holders++;
    return p;
}

void pool_release(struct pool *p)
{
    if (!p || --p->n_holders > 0)
        return;
    for (size_t i = 0; p->models && i < p->config->n_models; i++) {
        struct pool_model *m = &p->models[i];
        for (size_t k = 0; m->targets && k < m->model->n_targets; k++)
            pool_target_release(m->targets[k]);
        free(m->targets);
        free(m->states);
        release_counts(m->counts);
        trial_release(m->trial);
    }
    free(p->models);
    models_file_release(p->config);
    free(p);
}

uint32_t pool_latency_ms(void *context, uint32_t model)
{
    const struct pool *p = context;
    const struct pool_model *m = &p->models[model];
    uint32_t best = 0;
    for (size_t i = 0; i < m->model->n_targets; i++)
        if (m->states[i]->latency_ms > 0 && (best == 0 || m->states[i]->latency_ms < best))
            best = m->states[i]->latency_ms;
    return best > 0 ? best : m->model->avg_latency_ms;
}
