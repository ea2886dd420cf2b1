/* The end of a request: its facts, counters, log line and spans. */
#include "server/front/finished/finished.h"
#include "server/front/grammar/grammar_pool.h"
#include "server/front/output/generation.h"
#include "server/front/output/stream_ping.h"

#include "base/clock.h"

/* A request whose body has not been read counts as live. */
static bool is_background(const struct generation *g)
{
    return g->terms->params->spec && g->terms->params->spec->background;
}

uint64_t generation_n_live(const struct served_model *m)
{
    const struct generation *g;
    uint64_t n = 0;
    TAILQ_FOREACH(g, &m->generations, link)
    n += !is_background(g);
    return n;
}

struct metrics *generation_metrics(const struct generation *g)
{
    return is_background(g) ? g->served->background : g->served->counts;
}

const char *generation_name(const struct generation *g)
{
    return g->terms->params->request_id[0] ? g->terms->params->request_id : http_request_id(g->x);
}

/* ---- counting ------------------------------------------------------------------------------- */

void generation_watch_prefix(struct generation *g, const struct gen_prompt *p)
{
    uint32_t at;
    bool differs = prefix_watch_add(g->served->prefixes, &g->terms->cache_domain, p->reply->item.ids,
                                    p->reply->item.n_ids, &at);
    if (differs)
        histogram_observe(&generation_metrics(g)->prefix_differs_at, at);
    if (p == g->prompts) {
        g->account->timing.differs = differs;
        g->account->timing.differs_at = at;
    }
}

void generation_prompt_taken(struct generation *g, const struct gen_prompt *p)
{
    struct metrics *m = generation_metrics(g);
    blocker_name_add(g->served->blockers, p->engine_id, generation_name(g));
    m->n_prompt_tokens += p->reply->item.n_ids;
    histogram_observe(&m->prompt_tokens, (double)p->reply->item.n_ids);
}

void generation_choice_over(struct generation *g, const struct gen_prompt *p, const struct choice *c,
                            const struct wire_account *account)
{
    if (c->first_token_us == 0)
        return;
    /* The wait for its turn counts as queue time. */
    uint64_t queue_us = facts_since(p->submitted_us, g->account->timing.submitted_us) + timing_queue_us(account);
    uint64_t prefill_us = facts_since(c->first_token_us, g->account->timing.submitted_us + queue_us);
    uint64_t decode_us = c->last_token_us - c->first_token_us;
    metrics_phases(generation_metrics(g), (double)queue_us * 1e-6, (double)prefill_us * 1e-6, (double)decode_us * 1e-6,
                   c->n_tokens);
}

static void add_answer(struct answer_counts *counts, const struct choice *c)
{
    const struct answer_parser *answer = &c->parts->answer;
    const uint32_t n_as_text = c->parts->blocks ? c->parts->blocks->n_malformed : 0;
    counts->n_calls += answer->n_calls - n_as_text;
    counts->n_malformed += answer->tools.n_malformed + n_as_text;
    counts->n_reasoning += c->n_reasoning;
}

static void count_answers(struct answer_counts *to, const struct answer_counts *more)
{
    to->n_calls += more->n_calls;
    to->n_malformed += more->n_malformed;
    to->n_reasoning += more->n_reasoning;
}

static void add_choices(const struct generation *g, const struct gen_prompt *p, struct finished_request *f)
{
    for (uint32_t i = 0; p->reply->choices && i < g->terms->params->spec->n; i++) {
        const struct choice *c = &p->reply->choices[i];
        f->n_choices++;
        f->n_generated += c->n_tokens;
        add_answer(&f->answers, c);
        f->n_drafted += c->n_drafted;
        f->n_accepted += c->n_accepted;
        if (c->n_tokens > f->n_most)
            f->n_most = c->n_tokens;
        if (c->last_token_us > f->last_us)
            f->last_us = c->last_token_us;
    }
}

static struct finished_request facts_of(struct generation *g, int status, const struct api_error *e)
{
    struct finished_request f = {
        .served = g->served,
        .tenant = g->account->tenant,
        .name = generation_name(g),
        .route = g->account->route,
        .client = g->account->client,
        .context = &g->account->context,
        .spec = g->reply->n_prompts > 0 ? g->terms->params->spec : NULL,
        .max_tokens = g->reply->n_prompts > 0 ? g->prompts[0].max_tokens : 0,
        .status = status,
        .cache_layer = g->cache->report.layer,
        .n_cached = g->account->timing.n_cached,
        .timing = &g->account->timing,
        .first_us = g->account->timing.first_token_us,
    };
    for (size_t i = 0; i < g->reply->n_prompts; i++) {
        f.n_prompt += g->reply->prompts[i].item.n_ids;
        add_choices(g, &g->prompts[i], &f);
    }
    if (g->reply->n_prompts > 0)
        f.engine_id = g->prompts[0].engine_id;
    /* The account comes at the end of the engine's work: it is unknown for a request that was abandoned earlier. */
    if (f.first_us > 0 && g->account->timing.accounted)
        f.queued_until_us = timing_looked_us(&g->account->timing) + g->account->timing.turn_us +
                            timing_queue_us(&g->account->timing.account);
    if (f.queued_until_us > f.first_us)
        f.queued_until_us = f.first_us;
    f.error = e ? e->code : NULL;
    if (status == 499)
        f.finish = "abort";
    else if (e)
        f.finish = "error";
    else
        f.finish = g->reply->prompts[0].choices[0].finish == CHOICE_STOP ? "stop" : "length";
    return f;
}

/* ---- the whole request ---- */

void generation_over(struct generation *g, int status, const struct api_error *e)
{
    g->account->timing.now_us = quire_now_us();
    struct finished_request f = facts_of(g, status, e);
    for (size_t i = 0; i < g->reply->n_prompts && !e && status == 200; i++)
        histogram_observe(&generation_metrics(g)->max_tokens, g->prompts[i].max_tokens);
    count_answers(&generation_metrics(g)->answers, &f.answers);
    count_answers(&g->account->tenant->answers, &f.answers);
    finished_request_say(&f);
}

void generation_free(struct generation *g)
{
    if (g->job)
        text_pool_cancel(g->served->front->pool, &g->job->job.job);
    if (g->grammar)
        grammar_pool_leave(g->grammar);
    prompt_batch_end(&g->batch);
    stream_ping_free(g->ping);
    limits_dequeue(g->account->tenant, g->account->n_queued);
    limits_end(g->account->tenant);
    TAILQ_REMOVE(&g->served->generations, g, link);
    generation_parts_free(g);
}

static void count_unfinished(struct generation *g, enum metrics_finish how)
{
    for (size_t i = 0; i < g->reply->n_prompts; i++) {
        const struct choice *choices = g->reply->prompts[i].choices;
        for (uint32_t j = 0; choices && j < g->terms->params->spec->n; j++)
            if (choices[j].finish == CHOICE_RUNS && g->prompts[i].batch.accepted)
                generation_metrics(g)->finished[how]++;
    }
}

void generation_gone(void *context)
{
    struct generation *g = context;
    count_unfinished(g, METRICS_ABORT);
    generation_over(g, 499, NULL);
    generation_free(g);
}

void generation_fail(void *owner, const struct api_error *e)
{
    struct generation *g = owner;
    count_unfinished(g, METRICS_ERROR);
    if (e->status == 429)
        g->served->counts->n_refused++;
    generation_over(g, e->status, e);
    struct http_exchange *x = g->x;
    if (g->reply->begun) {
        g->reply->dialect->error(g->reply, e);
        generation_free(g);
        http_stream_end(x);
    } else {
        limits_headers(g->account->tenant, quire_now_us(), x);
        generation_free(g);
        api_error_reply(x, e);
    }
}

struct reply_times reply_times(const struct reply *r, const struct choice *c)
{
    const struct timing *t = &r->account->timing;
    struct reply_times times = {.total_us = facts_since(t->now_us, t->arrived_us)};
    if (c->first_token_us == 0)
        return times;
    const uint64_t queue_us = t->accounted ? timing_queue_us(&t->account) : 0;
    times.prompt_us = facts_since(c->first_token_us, t->submitted_us + queue_us);
    times.generated_us = c->last_token_us - c->first_token_us;
    return times;
}

void reply_put_timing(struct buffer *o, const struct reply *r)
{
    const struct generation_account *a = r->account;
    json_out_raw(o, ",\"quire_trace\":");
    timing_json(o, &a->timing, a->tenant, a->admin, r->served->front->tenants, r->served->blockers);
}
