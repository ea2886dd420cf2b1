#include "app/gateway/engines.h"

#include "app/gateway/serve_target.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An engine that is open. Its strings are those of its configuration. */
struct open_engine {
    const struct gateway_config *config; /* held */
    const struct gateway_model *model;
    const struct gateway_target *target;
    char name[280]; /* "model/target" */
    struct serve_target *serve;
};

struct engines {
    struct event_base *base;
    struct tenants *tenants;
    struct open_engine **open;
    size_t n;
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool has_same_options(const struct gateway_target *a, const struct gateway_target *b)
{
    if (a->n_options != b->n_options)
        return false;
    for (size_t i = 0; i < a->n_options; i++)
        if (strcmp(a->options[i], b->options[i]) != 0)
            return false;
    return true;
}

static bool is_same(const struct open_engine *o, const struct gateway_model *m, const struct gateway_target *t)
{
    return o->target->kind == t->kind && strcmp(o->target->place, t->place) == 0 &&
           strcmp(o->target->name, t->name) == 0 && strcmp(o->model->name, m->name) == 0 &&
           same_text(o->model->tokenizer, m->tokenizer) && same_text(o->target->engine_key_file, t->engine_key_file) &&
           has_same_options(o->target, t);
}

static struct open_engine *find(const struct engines *e, const struct gateway_model *m, const struct gateway_target *t)
{
    for (size_t i = 0; i < e->n; i++)
        if (is_same(e->open[i], m, t))
            return e->open[i];
    return NULL;
}

static void close_engine(struct open_engine *o)
{
    serve_target_close(o->serve);
    models_file_release(o->config);
    free(o);
}

static int open_engine(struct engines *e, const struct gateway_config *config, const struct gateway_model *m,
                       const struct gateway_target *t, struct quire_error *err)
{
    const bool is_address = t->kind == GATEWAY_TARGET_ENGINE;
    if (is_address && !m->tokenizer)
        return quire_fail(err, QUIRE_INVALID,
                          "%u:%u: model %s: target %s: engine: the model needs `tokenizer: DIR`, the directory of its "
                          "files",
                          t->line, t->column, m->name, t->name);
    struct open_engine **more = realloc(e->open, (e->n + 1) * sizeof *more);
    struct open_engine *o = calloc(1, sizeof *o);
    if (more)
        e->open = more;
    if (!more || !o) {
        free(o);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    o->config = models_file_hold(config);
    o->model = m;
    o->target = t;
    snprintf(o->name, sizeof o->name, "%s/%s", m->name, t->name);
    const struct serve_target_options options = {.name = o->name,
                                                 .model = m->name,
                                                 .dir = is_address ? m->tokenizer : t->place,
                                                 .address = is_address ? t->place : NULL,
                                                 .key_file = t->engine_key_file,
                                                 .options = t->options,
                                                 .n_options = t->n_options,
                                                 .tenants = e->tenants};
    int status = serve_target_open(e->base, &options, &o->serve, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "%u:%u: model %s: target %s", t->line, t->column, m->name, t->name);
        close_engine(o);
        return status;
    }
    e->open[e->n++] = o;
    return QUIRE_OK;
}

int engines_check(const struct gateway_config *config, struct quire_error *err)
{
    for (size_t i = 0; i < config->n_models; i++)
        for (size_t k = 0; k < config->models[i].n_targets; k++) {
            const struct gateway_model *m = &config->models[i];
            const struct gateway_target *t = &m->targets[k];
            const struct serve_target_options options = {.options = t->options, .n_options = t->n_options};
            if (t->kind == GATEWAY_TARGET_URL)
                continue;
            const int status = serve_target_check(&options, err);
            if (status != QUIRE_OK) {
                quire_error_prefix(err, "%u:%u: model %s: target %s", t->line, t->column, m->name, t->name);
                return status;
            }
        }
    return QUIRE_OK;
}

int engines_begin(struct event_base *base, struct tenants *tenants, struct engines **out, struct quire_error *err)
{
    struct engines *e = *out = calloc(1, sizeof *e);
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    e->base = base;
    e->tenants = tenants;
    return QUIRE_OK;
}

/* Engines that the configuration no longer names stay open: requests may run there. */
int engines_use(struct engines *e, const struct gateway_config *config, bool is_running, struct quire_error *err)
{
    for (size_t i = 0; i < config->n_models; i++)
        for (size_t k = 0; k < config->models[i].n_targets; k++) {
            const struct gateway_model *m = &config->models[i];
            const struct gateway_target *t = &m->targets[k];
            if (t->kind == GATEWAY_TARGET_URL || find(e, m, t))
                continue;
            if (is_running && t->kind == GATEWAY_TARGET_MODEL)
                return quire_fail(err, QUIRE_UNSUPPORTED,
                                  "%u:%u: model %s: target %s: a new engine in this process needs a restart", t->line,
                                  t->column, m->name, t->name);
            int status = open_engine(e, config, m, t, err);
            if (status != QUIRE_OK)
                return status;
        }
    return QUIRE_OK;
}

/* target may be of a later configuration than the engine. */
const char *engines_socket(void *context, const struct gateway_model *model, const struct gateway_target *target)
{
    const struct open_engine *o = find(context, model, target);
    return o ? serve_target_socket(o->serve) : NULL;
}

bool engines_has_chat(void *context, const struct gateway_model *model, const struct gateway_target *target)
{
    const struct open_engine *o = find(context, model, target);
    return !o || serve_target_has_chat(o->serve);
}

bool engines_died(const struct engines *e)
{
    bool died = false;
    for (size_t i = 0; i < e->n; i++)
        died |= serve_target_died(e->open[i]->serve);
    return died;
}

void engines_cancel(struct engines *e)
{
    for (size_t i = 0; i < e->n; i++)
        serve_target_cancel(e->open[i]->serve);
}

void engines_close(struct engines *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n; i++)
        close_engine(e->open[i]);
    free(e->open);
    free(e);
}
