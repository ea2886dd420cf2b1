/* A request for vectors, from its text work to its reply. */
#include "server/front/vectors/vectors.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end -------------------------------------------------------------------------------- */

static void cancel(struct vectors *v, struct vectors_prompt *p)
{
    if (p->live)
        v->served->source.cancel(v->served->source.self, p->source_id, -1);
    p->live = false;
    turns_leave(v->served->turns, &p->place);
}

static void vectors_free(struct vectors *v)
{
    if (v->in_pool)
        text_pool_cancel(v->served->front->pool, &v->job->job);
    else
        request_job_free(v->job);
    v->turn.n_waiting = 0;
    turns_wait(v->served->turns, &v->turn);
    for (size_t i = 0; i < v->n_prompts && v->prompts; i++) {
        cancel(v, &v->prompts[i]);
        free(v->prompts[i].ids);
        free(v->prompts[i].values);
    }
    free(v->prompts);
    limits_dequeue(v->tenant, v->n_queued);
    limits_end(v->tenant);
    TAILQ_REMOVE(&v->served->vectors, v, link);
    free(v);
}

static void log_end(const struct vectors *v, int status, const char *error)
{
    struct quire_log_field fields[9] = {
        {.key = "request_id", .text = http_request_id(v->x)},
        {.key = "tenant", .text = v->tenant->name},
        {.key = "route", .text = http_path(v->x)},
        {.key = "status", .number = status},
        {.key = "finish", .text = error ? "error" : "stop"},
    };
    size_t n = 5;
    if (!v->served->front->log_requests)
        return;
    if (error)
        fields[n++] = (struct quire_log_field){.key = "error", .text = error};
    fields[n++] = (struct quire_log_field){.key = "texts", .number = (int64_t)v->n_prompts};
    fields[n++] = (struct quire_log_field){.key = "prompt_tokens", .number = (int64_t)v->n_tokens};
    fields[n++] = (struct quire_log_field){.key = "total_ms",
                                           .number = (int64_t)((quire_now_us() - v->arrived_us) / 1000)};
    quire_log_fields(QUIRE_LOG_INFO, "server", fields, n, "request");
}

static void on_gone(void *context)
{
    log_end(context, 499, "abort");
    vectors_free(context);
}

/* A source may answer within its submit(): who called it does the rest. */
static void fail(struct vectors *v, const struct api_error *e)
{
    if (v->early_error) {
        *v->early_error = *e;
        v->failed_early = true;
        return;
    }
    struct http_exchange *x = v->x;
    v->served->counts->all.n_refused += e->status == 429;
    limits_headers(v->tenant, quire_now_us(), x);
    log_end(v, e->status, e->code ? e->code : "error");
    vectors_free(v);
    api_error_reply(x, e);
}

static void fail_with(struct vectors *v, int status, const char *why)
{
    struct api_error e;
    snprintf(e.why.text, sizeof e.why.text, "%s", why);
    api_fail_status(&e, status, NULL);
    fail(v, &e);
}

void vectors_end(struct served_model *m, const struct api_error *e)
{
    struct vectors *v;
    while ((v = TAILQ_FIRST(&m->vectors)))
        fail(v, e);
}

static void on_reply_gone(void *context)
{
    struct buffer *o = context;
    buffer_free(o);
    free(o);
}

static void complete(struct vectors *v)
{
    struct http_exchange *x = v->x;
    struct buffer *o = calloc(1, sizeof *o);
    if (o)
        vectors_reply(v, o);
    if (!o || o->failed) {
        if (o)
            on_reply_gone(o);
        fail_with(v, QUIRE_NO_MEMORY, "there is no memory for the reply");
        return;
    }
    limits_headers(v->tenant, quire_now_us(), x);
    log_end(v, 200, NULL);
    v->served->counts->all.n_prompt_tokens += v->n_tokens;
    v->served->counts->all.n_vectors += v->n_prompts;
    histogram_observe(&v->served->counts->all.e2e, (double)(quire_now_us() - v->arrived_us) * 1e-6);
    vectors_free(v);
    http_reply_large(x, 200, "application/json", o->data, o->n, on_reply_gone, o);
}

/* ---- what the engine says ------------------------------------------------------------------- */

/* A prompt of a request that was taken waits, again. */
static void wait_for_turn(struct vectors *v, struct vectors_prompt *p)
{
    size_t i = (size_t)(p - v->prompts);
    p->waits = true;
    if (i < v->next)
        v->next = i;
    v->turn.n_waiting++;
    v->turn.n_tokens = (uint32_t)v->prompts[v->next].n_ids;
}

static bool try_later(struct vectors *v, struct vectors_prompt *p)
{
    if (v->n_accepted == 0 || upstream_state(v->served->upstream) == UPSTREAM_DRAINING || v->failed_early)
        return false;
    turns_refused(v->served->turns, &p->place);
    wait_for_turn(v, p);
    turns_wait(v->served->turns, &v->turn);
    return true;
}

static void on_accepted(void *context, uint64_t engine_id)
{
    struct vectors_prompt *p = context;
    struct vectors *v = p->v;
    if (p->accepted)
        return;
    p->accepted = true;
    blocker_name_add(v->served->blockers, engine_id, http_request_id(v->x));
    if (v->n_accepted++ > 0)
        return;
    for (size_t i = 1; i < v->n_prompts; i++)
        wait_for_turn(v, &v->prompts[i]);
    if (v->n_prompts > 1)
        turns_wait(v->served->turns, &v->turn);
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    struct vectors_prompt *p = context;
    struct api_error e;
    p->live = false;
    if (refuse->status == QUIRE_EXHAUSTED && try_later(p->v, p))
        return;
    front_refused(p->v->served, refuse, &e);
    fail(p->v, &e);
}

static void on_token(void *context, const struct wire_token *token)
{
    (void)context;
    (void)token;
}

static void on_vector(void *context, const struct wire_vector *vector)
{
    struct vectors_prompt *p = context;
    if (!p->values)
        p->values = vectors_numbers(p->v->job->served->facts, vector);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct vectors_prompt *p = context;
    struct vectors *v = p->v;
    p->live = false;
    turns_leave(v->served->turns, &p->place);
    if (done->finish >= WIRE_FINISH_CANCELLED) {
        struct api_error e;
        if (done->finish == WIRE_FINISH_CANCELLED) {
            fail_with(v, QUIRE_IO, "the engine cancelled the request");
        } else {
            front_failed(done, &e);
            fail(v, &e);
        }
        return;
    }
    if (!p->values) {
        fail_with(v, QUIRE_INTERNAL, "the engine gave no vector");
        return;
    }
    p->over = true;
    limits_dequeue(v->tenant, 1);
    v->n_queued--;
    if (++v->n_over == v->n_prompts && !v->early_error)
        complete(v);
}

static void on_lost(void *context, const char *why)
{
    struct vectors_prompt *p = context;
    p->live = false;
    fail_with(p->v, QUIRE_IO, why);
}

static const struct completion_events events = {
    .on_accepted = on_accepted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_token,
    .on_vector = on_vector,
    .on_done = on_done,
    .on_lost = on_lost,
};

/* ---- submitting ----------------------------------------------------------------------------- */

static int submit(struct vectors *v, struct vectors_prompt *p, struct quire_error *err)
{
    const struct completion_source *source = &v->served->source;
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = p->ids;
    s.n_prompt = (uint32_t)p->n_ids;
    s.temperature = 0;
    s.wants_vector = true;
    s.segment_from = (uint32_t)p->segment_from;
    s.cache_domain = v->cache_domain;
    front_bill(v->tenant, &s);
    p->live = true;
    turns_take(v->served->turns, &v->turn, &p->place, s.n_prompt);
    int status = source->submit(source->self, &s, NULL, &events, p, &p->source_id, err);
    if (status != QUIRE_OK) {
        p->live = false;
        turns_leave(v->served->turns, &p->place);
    }
    return status;
}

/* v may be no more afterwards. */
static void submit_one(struct vectors *v, struct vectors_prompt *p)
{
    struct api_error e;
    v->early_error = &e;
    int status = submit(v, p, &e.why);
    v->early_error = NULL;
    if (status == QUIRE_EXHAUSTED && try_later(v, p))
        return;
    if (status != QUIRE_OK)
        api_fail_status(&e, status, NULL);
    if (status != QUIRE_OK || v->failed_early)
        fail(v, &e);
    else if (v->n_over == v->n_prompts)
        complete(v);
}

static void on_turn(struct turn *turn)
{
    struct vectors *v = (struct vectors *)((char *)turn - offsetof(struct vectors, turn));
    struct vectors_prompt *p = &v->prompts[v->next];
    p->waits = false;
    while (v->next < v->n_prompts && !v->prompts[v->next].waits)
        v->next++;
    turn->n_waiting--;
    turn->n_tokens = turn->n_waiting > 0 ? (uint32_t)v->prompts[v->next].n_ids : 0;
    turns_wait(v->served->turns, turn);
    submit_one(v, p);
}

/* What a tenant may have waiting holds for texts as for choices. */
static bool queue(struct vectors *v, struct api_error *e)
{
    uint32_t n = (uint32_t)v->n_prompts;
    v->turn = (struct turn){.tenant = v->tenant->index, .is_small = n <= TURNS_SMALL, .n_choices = 1, .next = on_turn};
    v->next = v->n_prompts;
    if (!limits_queue(v->tenant, n, e))
        return false;
    v->n_queued = n;
    turns_expect(v->served->turns, &v->turn, n - 1);
    return true;
}

/* A number takes up to 15 bytes with its comma, or 5.4 of base64. */
static bool fits_reply(const struct vectors *v, struct api_error *e)
{
    uint64_t n_numbers = v->ask.task == VECTORS_EMBED ? (uint64_t)v->n_prompts * v->ask.dimensions : 0;
    if (n_numbers * (v->ask.base64 ? 6 : 15) <= FRONT_REPLY_BYTES)
        return true;
    return api_bad(e, "input", "the reply could be more than %llu MiB: send fewer texts%s",
                   (unsigned long long)(FRONT_REPLY_BYTES >> 20), v->ask.base64 ? "" : ", or ask for base64");
}

static void on_text(void *owner, struct request_job *j)
{
    struct vectors *v = owner;
    struct api_error e;
    v->in_pool = false;
    http_body_freed(v->x);
    v->ask = j->ask;
    v->model = j->model;
    v->cache_domain = j->cache_domain;
    if (!j->ok)
        e = j->error;
    bool ok = j->ok && front_can_serve(v->served, &e) && vectors_make_prompts(v, j, &e) && fits_reply(v, &e) &&
              queue(v, &e) && limits_prompt(v->tenant, v->n_tokens, quire_now_us(), &e);
    if (ok)
        submit_one(v, &v->prompts[0]);
    else
        fail(v, &e);
}

/* Whether the model that is served gives what the route is for. */
static bool may(const struct served_model *m, enum vectors_task task, struct api_error *e)
{
    if (m->facts->vector_size == 0)
        return api_fail(e, 400, "model", "model_not_supported",
                        "model: %s generates text and gives no vectors: serve one that does, by quire serve MODEL "
                        "--task embed",
                        m->config->names[0]);
    if (task == VECTORS_EMBED && m->facts->vector_is_scores)
        return api_fail(e, 400, "model", "model_not_supported",
                        "model: %s scores pairs of texts and gives no embeddings: use /v1/score or /v1/rerank",
                        m->config->names[0]);
    return true;
}

static void start(struct served_model *m, struct http_exchange *x, enum vectors_task task,
                  bool (*read)(struct request_job *j, const struct quire_doc *body))
{
    struct api_error e;
    struct tenant *tenant = front_begin(m, x);
    if (!tenant)
        return;
    bool ok = may(m, task, &e);
    struct vectors *v = ok ? calloc(1, sizeof *v) : NULL;
    struct request_job *job = v ? request_job_new(m, x, tenant, read, on_text, v) : NULL;
    if (!job) {
        free(v);
        if (ok)
            api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    *v = (struct vectors){
        .served = m, .x = x, .tenant = tenant, .job = job, .in_pool = true, .arrived_us = quire_now_us()};
    TAILQ_INSERT_TAIL(&m->vectors, v, link);
    http_on_gone(x, on_gone, v);
    text_pool_submit(m->front->pool, &job->job);
}

void embeddings_start(struct served_model *m, struct http_exchange *x)
{
    start(m, x, VECTORS_EMBED, embeddings_read);
}

void score_start(struct served_model *m, struct http_exchange *x)
{
    start(m, x, VECTORS_SCORE, score_read);
}

void rerank_start(struct served_model *m, struct http_exchange *x)
{
    start(m, x, VECTORS_RERANK, rerank_read);
}
