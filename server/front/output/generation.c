/* The beginning of a generating request: its headers, its text work, its terms. */
#include "base/clock.h"
#include "server/front/grammar/grammar_pool.h"
#include "server/front/output/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Applies the limits of the key. */
static bool apply_limits(struct request_spec *s, bool has_priority, const struct tenant *t, struct api_error *e)
{
    if (!has_priority)
        s->priority = t->priority_min > 0 ? t->priority_min : (t->priority_max < 0 ? t->priority_max : 0);
    if (s->priority < t->priority_min || s->priority > t->priority_max)
        return api_bad(e, "priority", "this key may have %d to %d, got %d", t->priority_min, t->priority_max,
                       s->priority);
    return true;
}

/* Takes the body's fields. The headers count if the body has no such field. */
static void take_params(struct params *params, struct generation_job *j)
{
    const struct params headers = *params;
    *params = *j->params;
    *j->params = (struct params){0};
    if (params->deadline_ms == 0)
        params->deadline_ms = headers.deadline_ms;
    params->wants_timing |= headers.wants_timing;
}

/* Moves the job's prompts to the reply, which shows them. The text is needed only if it is shown. */
static bool take_prompts(struct generation *g, struct text_task *text)
{
    struct reply *r = g->reply;
    g->prompts = calloc(text->n_items, sizeof *g->prompts);
    r->prompts = calloc(text->n_items, sizeof *r->prompts);
    if (!g->prompts || !r->prompts)
        return false;
    r->n_prompts = text->n_items;
    for (size_t i = 0; i < text->n_items; i++) {
        struct request_item *item = &r->prompts[i].item;
        *item = text->items[i];
        text->items[i] = (struct request_item){0};
        g->prompts[i].g = g;
        g->prompts[i].reply = &r->prompts[i];
        if (!r->params->echo && !r->params->shows_prompt) {
            free(item->text);
            item->text = NULL;
            item->n_text = 0;
        }
    }
    g->prediction = text->prediction.ids;
    r->n_prediction = text->prediction.n_ids;
    text->prediction.ids = NULL;
    return true;
}

/* Moves the job's results to the request. */
static bool take_job(struct generation *g, struct generation_job *j, struct api_error *e)
{
    struct served_model *m = g->served;
    struct request_terms *terms = g->terms;
    struct reply *r = g->reply;
    if (!j->job.ok) {
        *e = j->job.error;
        return false;
    }
    take_params(terms->params, j);
    if (j->job.notes) /* a reply that is found by its alias has no warnings */
        g->cache->has_alias = false;
    terms->cache_domain = j->job.cache_domain;
    generation_cache_begin(g->cache, m, terms->params, j);
    terms->rules = (struct choice_rules){m->config->text, terms->params, terms->facts->eos, terms->facts->n_eos};
    snprintf(r->id, sizeof r->id, "%s%s", r->dialect->id_prefix, generation_name(g));
    terms->prompt_name = j->job.text->name;
    if (!apply_limits(terms->params->spec, terms->params->has_priority, g->account->tenant, e))
        return false;
    terms->params->spec->background |= g->account->tenant->in_bulk; /* for its counters */
    r->dialect->begin(r, j);
    return (!r->head.failed && take_prompts(g, j->job.text)) ||
           api_fail(e, 503, NULL, "out_of_memory", "out of memory");
}

/* ---- its grammar ---- */

static void fail(struct generation *g, const struct api_error *e)
{
    g->account->timing.submitted_us = quire_now_us();
    generation_fail(g, e);
}

static bool take_grammar(struct generation *g, const struct grammar_result *result, struct api_error *e)
{
    struct params *params = g->terms->params;
    if (!result->ok) {
        *e = result->error;
        grammar_request_name(params->grammar, e);
        return false;
    }
    uint8_t *normal = malloc(result->n);
    if (!normal)
        return api_no_memory(e);
    memcpy(normal, result->normal, result->n);
    params->spec->grammar = normal;
    params->spec->n_grammar = (uint32_t)result->n;
    grammar_request_free(params->grammar);
    params->grammar = NULL;
    return true;
}

static void on_grammar(void *owner, const struct grammar_result *result)
{
    struct generation *g = owner;
    struct api_error e;
    g->grammar = NULL;
    if (take_grammar(g, result, &e))
        generation_run(g);
    else
        fail(g, &e);
}

/* The ends of the prompts show where the answers begin. They have one grammar, so they must agree. */
static bool place_grammar(struct generation *g, struct api_error *e)
{
    struct params *params = g->terms->params;
    const struct reply *r = g->reply;
    enum reasoning_place first = REASONING_IS_BEFORE, place;
    if (!params->grammar || params->grammar->reasoning_format == REASONING_NONE)
        return true;
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct quire_error err;
        const struct request_item *item = &r->prompts[i].item;
        if (notation_reasoning_place(g->served->config->text, params->grammar->reasoning_format, item->ids, item->n_ids,
                                     &place, &err) != QUIRE_OK)
            return api_fail(e, 500, NULL, "server_error", "%s", err.text);
        if (i > 0 && place != first)
            return api_bad(e, params->grammar->field,
                           "prompt %zu begins the reasoning in another way than the first one: send it alone", i);
        first = place;
    }
    grammar_request_place(&params->grammar, first);
    return true;
}

/* Returns whether it may run now; otherwise it waits or has ended. */
static bool find_grammar(struct generation *g)
{
    const struct params *params = g->terms->params;
    struct served_model *m = g->served;
    struct grammar_pool *pool = m->front->grammars;
    struct quire_grammars *grammars = m->config->grammars;
    struct grammar_counts *counts = &generation_metrics(g)->grammars;
    struct grammar_result result;
    struct api_error e;
    if (!params->grammar)
        return true;
    if (!grammars) {
        api_unsupported(&e, params->grammar->field,
                        "this server cannot restrict answers: its tokenizer or its engine "
                        "does not support grammars");
        fail(g, &e);
        return false;
    }
    if (grammar_pool_find(pool, grammars, params->grammar, counts, &result)) {
        if (take_grammar(g, &result, &e))
            return true;
        fail(g, &e);
        return false;
    }
    g->grammar = grammar_pool_wait(pool, grammars, params->grammar, g->account->tenant->index, counts, on_grammar, g,
                                   &e);
    if (!g->grammar) {
        grammar_request_name(params->grammar, &e);
        fail(g, &e);
    }
    return false;
}

/* Called after the text work. A draining server still finishes accepted requests. */
static void on_text(void *owner, struct request_job *job)
{
    struct generation *g = owner;
    struct api_error e;
    g->job = NULL;
    http_body_freed(g->x);
    bool ok = take_job(g, (struct generation_job *)job, &e) && place_grammar(g, &e);
    request_job_free(job);
    if (!ok)
        fail(g, &e);
    else if (find_grammar(g))
        generation_run(g);
}

/* x-quire-deadline-ms and x-quire-trace: for clients that cannot add fields. */
static bool read_headers(struct generation *g, struct api_error *e)
{
    struct params *params = g->terms->params;
    const char *deadline = http_header(g->x, "x-quire-deadline-ms");
    const char *trace = http_header(g->x, "x-quire-trace");
    size_t n = deadline ? strspn(deadline, "0123456789") : 0;
    unsigned long ms = n > 0 && n < 10 && deadline[n] == '\0' ? strtoul(deadline, NULL, 10) : 0;
    if (deadline && (ms == 0 || ms > PARAMS_MAX_DEADLINE_MS))
        return api_bad(e, "x-quire-deadline-ms", "must be between 1 and %d", PARAMS_MAX_DEADLINE_MS);
    params->deadline_ms = (uint32_t)ms;
    params->wants_timing = trace && strcmp(trace, "1") == 0;
    generation_cache_header(g->x, &g->cache->header);
    trace_context_read(http_header(g->x, "traceparent"), http_header(g->x, "tracestate"), &g->account->context);
    if (trace && !params->wants_timing && strcmp(trace, "0") != 0)
        return api_bad(e, "x-quire-trace", "must be 0 or 1");
    return true;
}

void generation_start(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect)
{
    struct api_error e;
    struct tenant *tenant = front_begin_cached(m, x);
    if (!tenant)
        return;
    struct key256 alias;
    bool has_alias;
    struct timing timing = {.arrived_us = quire_now_us()};
    if (generation_alias_serve(m, x, tenant, dialect, &timing, &alias, &has_alias))
        return;
    if (m->facts->vector_size > 0) {
        api_fail(&e, 400, "model", "model_not_supported", "model: %s generates no text: %s", m->config->names[0],
                 m->facts->vector_is_scores ? "use /v1/score or /v1/rerank" : "use /v1/embeddings");
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    struct generation *g = generation_new(m, x, dialect);
    bool ok = g || api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
    if (ok) {
        snprintf(g->account->route, sizeof g->account->route, "%s", http_path(x));
        http_client(x, g->account->client);
        g->account->tenant = tenant;
        g->account->admin = front_is_admin(m->front, x);
        g->cache->has_alias = has_alias;
        if (has_alias) {
            g->cache->alias = alias;
            g->reply->record = &g->cache->shown;
        }
        g->account->timing = timing;
        ok = read_headers(g, &e);
    }
    if (ok) {
        g->job = generation_job_new(m, x, tenant, dialect->read, on_text, g);
        ok = g->job || api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
    }
    if (!ok) {
        if (g)
            generation_parts_free(g);
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    g->job->job.shape = dialect->shape;
    g->terms->facts = model_facts_hold(g->job->job.served->facts);
    TAILQ_INSERT_TAIL(&m->generations, g, link);
    http_on_gone(x, generation_gone, g);
    text_pool_submit(m->front->pool, &g->job->job.job);
}

void generations_end(struct served_model *m, const struct api_error *e)
{
    struct generation *g;
    while ((g = TAILQ_FIRST(&m->generations)))
        generation_fail(g, e);
}
