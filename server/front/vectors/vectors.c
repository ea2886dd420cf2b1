/* A request for vectors, from its text work to its reply. */
#include "server/front/vectors/vectors.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/front/fields/field_shape.h"

#include <stdlib.h>
#include <string.h>

/* ---- the end -------------------------------------------------------------------------------- */

static void vectors_free(struct vectors *v)
{
    if (v->in_pool)
        text_pool_cancel(v->served->front->pool, &v->job->job.job);
    else
        request_job_free((struct request_job *)v->job);
    prompt_batch_end(&v->batch);
    for (size_t i = 0; i < v->n_prompts && v->prompts; i++) {
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
    char client[HTTP_ADDRESS_BYTES];
    http_client(v->x, client);
    struct quire_log_field fields[10] = {
        {.key = "request_id", .text = http_request_id(v->x)},
        {.key = "client", .text = client},
        {.key = "tenant", .text = v->tenant->name},
        {.key = "route", .text = http_path(v->x)},
        {.key = "status", .number = status},
        {.key = "finish", .text = error ? "error" : "stop"},
    };
    size_t n = 6;
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

/* Frees v. */
static void fail(void *owner, const struct api_error *e)
{
    struct vectors *v = owner;
    struct http_exchange *x = v->x;
    v->served->counts->n_refused += e->status == 429;
    limits_headers(v->tenant, quire_now_us(), x);
    log_end(v, e->status, e->code ? e->code : "error");
    vectors_free(v);
    api_error_reply(x, e);
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

static void complete(void *owner)
{
    struct vectors *v = owner;
    struct http_exchange *x = v->x;
    struct buffer *o = calloc(1, sizeof *o);
    if (o)
        v->route->put(v, o);
    if (!o || o->failed) {
        if (o)
            on_reply_gone(o);
        prompt_batch_fail_with(&v->batch, QUIRE_NO_MEMORY, "there is no memory for the reply");
        return;
    }
    limits_headers(v->tenant, quire_now_us(), x);
    log_end(v, 200, NULL);
    v->served->counts->n_prompt_tokens += v->n_tokens;
    v->served->counts->n_vectors += v->n_prompts;
    histogram_observe(&v->served->counts->e2e, (double)(quire_now_us() - v->arrived_us) * 1e-6);
    vectors_free(v);
    http_reply_large(x, 200, "application/json", o->data, o->n, on_reply_gone, o);
}

/* ---- events of the engine ---- */

static void on_accepted(struct batch_prompt *p, uint64_t engine_id)
{
    const struct vectors *v = ((struct vectors_prompt *)p)->v;
    blocker_name_add(v->served->blockers, engine_id, http_request_id(v->x));
}

static void on_vector(struct batch_prompt *batch, const struct wire_vector *vector)
{
    struct vectors_prompt *p = (struct vectors_prompt *)batch;
    if (!p->values)
        p->values = vectors_numbers(p->v->job->job.served->facts, vector);
}

static bool on_done(struct batch_prompt *batch, const struct wire_done *done)
{
    const struct vectors_prompt *p = (struct vectors_prompt *)batch;
    struct vectors *v = p->v;
    if (!prompt_batch_ended_well(batch, done))
        return false;
    if (!p->values) {
        prompt_batch_fail_with(&v->batch, QUIRE_INTERNAL, "the engine gave no vector");
        return false;
    }
    limits_dequeue(v->tenant, 1);
    v->n_queued--;
    return true;
}

/* ---- submitting ----------------------------------------------------------------------------- */

static int submit(struct batch_prompt *batch, struct quire_error *err)
{
    const struct vectors_prompt *p = (struct vectors_prompt *)batch;
    const struct vectors *v = p->v;
    struct request_spec s;
    vectors_spec(&s, p->ids, p->n_ids);
    s.segment_from = (uint32_t)p->segment_from;
    s.cache_domain = v->job->job.cache_domain;
    front_bill(v->tenant, &s);
    return prompt_batch_send(batch, &s, NULL, err);
}

static const struct prompt_batch_calls batch_calls = {
    .prompt_bytes = sizeof(struct vectors_prompt),
    .submit = submit,
    .on_accepted = on_accepted,
    .on_vector = on_vector,
    .on_done = on_done,
    .complete = complete,
    .fail = fail,
};

/* The limit of a tenant's waiting choices also applies to texts. */
static bool queue(struct vectors *v, struct api_error *e)
{
    uint32_t n = (uint32_t)v->n_prompts;
    prompt_batch_begin(&v->batch, v->served, &batch_calls, v, v->tenant, &v->prompts->batch, n, 1);
    if (!limits_queue(v->tenant, n, e))
        return false;
    v->n_queued = n;
    prompt_batch_expect(&v->batch);
    return true;
}

/* A number takes up to 15 bytes with its comma, or 5.4 of base64. */
static bool fits_reply(const struct vectors *v, struct api_error *e)
{
    uint64_t n_numbers = v->route->task == VECTORS_EMBED ? (uint64_t)v->n_prompts * v->job->ask.dimensions : 0;
    if (n_numbers * (v->job->ask.base64 ? 6 : 15) <= FRONT_REPLY_BYTES)
        return true;
    return api_bad(e, "input", "the reply could be more than %llu MiB: send fewer texts%s",
                   (unsigned long long)(FRONT_REPLY_BYTES >> 20), v->job->ask.base64 ? "" : ", or ask for base64");
}

static void on_text(void *owner, struct request_job *j)
{
    struct vectors *v = owner;
    struct api_error e;
    v->in_pool = false;
    http_body_freed(v->x);
    if (!j->ok)
        e = j->error;
    bool ok = j->ok && front_can_serve(v->served, &e) && vectors_make_prompts(v, &e) && fits_reply(v, &e) &&
              queue(v, &e) && limits_prompt(v->tenant, v->n_tokens, quire_now_us(), &e);
    if (ok)
        prompt_batch_start(&v->batch);
    else
        fail(v, &e);
}

/* Returns whether the model provides what the route needs. */
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

void vectors_start(struct served_model *m, struct http_exchange *x, const struct vectors_route *route)
{
    struct api_error e;
    struct tenant *tenant = front_begin(m, x);
    if (!tenant)
        return;
    bool ok = may(m, route->task, &e);
    struct vectors *v = ok ? calloc(1, sizeof *v) : NULL;
    struct request_job *job = v ? request_job_new(m, x, tenant, &route->calls, on_text, v) : NULL;
    if (!job) {
        free(v);
        if (ok)
            api_no_memory(&e);
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    *v = (struct vectors){.route = route,
                          .served = m,
                          .x = x,
                          .tenant = tenant,
                          .job = (struct vectors_job *)job,
                          .in_pool = true,
                          .arrived_us = quire_now_us()};
    job->shape = route->shape;
    TAILQ_INSERT_TAIL(&m->vectors, v, link);
    http_on_gone(x, on_gone, v);
    text_pool_submit(m->front->pool, &job->job);
}

void embeddings_start(struct served_model *m, struct http_exchange *x)
{
    static const struct vectors_route route = {VECTORS_EMBED,
                                               {.n_bytes = sizeof(struct vectors_job), .read = embeddings_read},
                                               &field_shape_embeddings,
                                               vectors_put_embeddings};
    vectors_start(m, x, &route);
}

void score_start(struct served_model *m, struct http_exchange *x)
{
    static const struct vectors_route route = {VECTORS_SCORE,
                                               {.n_bytes = sizeof(struct vectors_job), .read = score_read},
                                               &field_shape_score,
                                               vectors_put_scores};
    vectors_start(m, x, &route);
}

void rerank_start(struct served_model *m, struct http_exchange *x)
{
    static const struct vectors_route route = {VECTORS_RERANK,
                                               {.n_bytes = sizeof(struct vectors_job), .read = rerank_read},
                                               &field_shape_rerank,
                                               vectors_put_ranking};
    vectors_start(m, x, &route);
}
