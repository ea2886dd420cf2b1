/* POST /v1/cache/pins: computes a prompt and keeps its full KV blocks cached for a time. With a time of 0 it only
 * computes them. */
#include "base/clock.h"
#include "server/front/batch/prompt_batch.h"
#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TTL_S 300
#define MAX_TTL_S 86400

struct pin_job {
    struct request_job job; /* first member */
    uint32_t ttl_s;
    bool background;
};

struct pin {
    TAILQ_ENTRY(pin) link;
    struct served_model *served;
    struct http_exchange *x;
    struct tenant *tenant;
    /* belongs to the pool while it is there; afterwards to the pin, until the engine has the prompt */
    struct pin_job *job;
    bool in_pool;
    struct prompt_batch batch;
    struct batch_prompt prompt;
    uint32_t n_cached, n_created;
    bool queued; /* counts in the tenant's queue, until it ends */
    uint32_t ttl_s, n_prompt;
};

static void pin_free(struct pin *p)
{
    if (p->in_pool)
        text_pool_cancel(p->served->front->pool, &p->job->job.job);
    else
        request_job_free((struct request_job *)p->job);
    prompt_batch_end(&p->batch);
    limits_dequeue(p->tenant, p->queued);
    limits_end(p->tenant);
    TAILQ_REMOVE(&p->served->pins, p, link);
    free(p);
}

static void on_gone(void *context)
{
    pin_free(context);
}

static void fail(void *owner, const struct api_error *e)
{
    struct pin *p = owner;
    struct http_exchange *x = p->x;
    p->served->counts->n_refused += e->status == 429;
    limits_headers(p->tenant, quire_now_us(), x);
    pin_free(p);
    api_error_reply(x, e);
}

void pins_end(struct served_model *m, const struct api_error *e)
{
    struct pin *p;
    while ((p = TAILQ_FIRST(&m->pins)))
        fail(p, e);
}

/* ---- events of the engine ---- */

static void on_accepted(struct batch_prompt *prompt, uint64_t engine_id)
{
    struct pin *p = prompt->batch->owner;
    blocker_name_add(p->served->blockers, engine_id, http_request_id(p->x));
    if (prompt_batch_is_submitting(&p->batch))
        return;
    request_job_free(&p->job->job); /* it may be long, and the engine has a copy */
    p->job = NULL;
}

static bool on_done(struct batch_prompt *prompt, const struct wire_done *done)
{
    struct pin *p = prompt->batch->owner;
    p->n_cached = done->n_cached;
    p->n_created = done->n_created;
    return prompt_batch_ended_well(prompt, done);
}

static void complete(void *owner)
{
    struct pin *p = owner;
    struct buffer o = {0};
    json_out_raw(&o, "{\"object\":\"cache.pin\",\"prompt_tokens\":");
    json_out_u64(&o, p->n_prompt);
    json_out_raw(&o, ",\"cached_tokens\":");
    json_out_u64(&o, p->n_cached);
    json_out_raw(&o, ",\"pinned_tokens\":");
    json_out_u64(&o, p->ttl_s > 0 ? (uint64_t)p->n_cached + p->n_created : 0);
    json_out_raw(&o, ",\"ttl_seconds\":");
    json_out_u64(&o, p->ttl_s);
    json_out_raw(&o, "}");
    struct http_exchange *x = p->x;
    limits_headers(p->tenant, quire_now_us(), x);
    pin_free(p);
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

/* ---- the request ---------------------------------------------------------------------------- */

/* On the pool. The text after a prefix varies, so a chat gets no generation prompt unless the request sets one. */
static bool read_prefix(struct request_job *j, const struct quire_doc *body)
{
    struct quire_value prompt = json_field_get(body, "prompt");
    if (json_field_get(body, "messages").n) {
        if (prompt.n)
            return api_bad(&j->error, "prompt", "does not go with \"messages\"");
        if (!chat_read_messages(j, body))
            return false;
        if (!json_field_get(body, "add_generation_prompt").n)
            j->text->chat.add_generation_prompt = false;
        return true;
    }
    if (!prompt.n)
        return api_bad(&j->error, "prompt", "is missing; a pin takes a prompt or messages");
    j->text->add_special = true;
    return text_task_items(j->text, 1, &j->error) && completions_take_prompt(j, prompt, &j->text->items[0]);
}

static bool pin_read(struct request_job *j, const struct quire_doc *body)
{
    struct pin_job *p = (struct pin_job *)j;
    struct api_error *e = &j->error;
    const char *model = NULL, *salt = NULL;
    int64_t ttl = DEFAULT_TTL_S;
    if (!json_field_string(body, "model", &model, e) || !model_name(j->models, j->served, model, e) ||
        !json_field_i64(body, "ttl_seconds", 0, MAX_TTL_S, &ttl, e) ||
        !json_field_bool(body, "background", &p->background, e) || !json_field_string(body, "cache_salt", &salt, e) ||
        !read_prefix(j, body))
        return false;
    request_job_salt(j, salt);
    p->ttl_s = (uint32_t)ttl;
    return json_field_bool(body, "add_special_tokens", &j->text->add_special, e);
}

static bool check(struct pin *p, struct api_error *e)
{
    const struct request_job *j = &p->job->job;
    const struct request_item *item = &j->text->items[0];
    const char *name = j->text->name;
    if (item->n_ids == 0)
        return api_bad(e, name, "is empty");
    if (item->n_ids > j->served->facts->max_model_len)
        return api_fail(e, 400, name, "context_length_exceeded",
                        "%s: this model's maximum context length is %u tokens, the prompt has %zu", name,
                        j->served->facts->max_model_len, item->n_ids);
    p->n_prompt = (uint32_t)item->n_ids;
    p->queued = limits_queue(p->tenant, 1, e);
    return p->queued && limits_prompt(p->tenant, item->n_ids, quire_now_us(), e);
}

static int submit(struct batch_prompt *prompt, struct quire_error *err)
{
    const struct pin *p = prompt->batch->owner;
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = p->job->job.text->items[0].ids;
    s.n_prompt = p->n_prompt;
    s.temperature = 0;
    s.cache_domain = p->job->job.cache_domain;
    s.pin_us = (uint64_t)p->ttl_s * 1000000;
    s.background = p->job->background;
    front_bill(p->tenant, &s);
    return prompt_batch_send(prompt, &s, NULL, err);
}

static const struct request_job_calls job_calls = {.n_bytes = sizeof(struct pin_job), .read = pin_read};

static const struct prompt_batch_calls batch_calls = {
    .prompt_bytes = sizeof(struct batch_prompt),
    .submit = submit,
    .on_accepted = on_accepted,
    .on_done = on_done,
    .complete = complete,
    .fail = fail,
};

static void on_text(void *owner, struct request_job *j)
{
    struct pin *p = owner;
    struct api_error e;
    p->in_pool = false;
    p->ttl_s = p->job->ttl_s;
    http_body_freed(p->x);
    if (!j->ok)
        e = j->error;
    if (!j->ok || !front_can_serve(p->served, &e) || !check(p, &e)) {
        fail(p, &e);
        return;
    }
    p->prompt.n_tokens = p->n_prompt;
    prompt_batch_begin(&p->batch, p->served, &batch_calls, p, p->tenant, &p->prompt, 1, 1);
    prompt_batch_start(&p->batch);
}

void pin_start(struct served_model *m, struct http_exchange *x)
{
    struct tenant *tenant = front_begin(m, x);
    if (!tenant)
        return;
    struct pin *p = calloc(1, sizeof *p);
    struct request_job *job = p ? request_job_new(m, x, tenant, &job_calls, on_text, p) : NULL;
    if (!job) {
        struct api_error e;
        free(p);
        api_no_memory(&e);
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    *p = (struct pin){.served = m, .x = x, .tenant = tenant, .job = (struct pin_job *)job, .in_pool = true};
    job->shape = &field_shape_pins;
    TAILQ_INSERT_TAIL(&m->pins, p, link);
    http_on_gone(x, on_gone, p);
    text_pool_submit(m->front->pool, &job->job);
}
