/* Routes that need the tokenizer and no engine: /tokenize, /detokenize, and counting for /v1/messages/count_tokens. */
#include "base/clock.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

struct utility {
    TAILQ_ENTRY(utility) link;
    struct served_model *served;
    struct http_exchange *x;
    struct tenant *tenant;
    struct request_job *job; /* while it is in the pool */
};

static void utility_free(struct utility *u)
{
    if (u->job)
        text_pool_cancel(u->served->front->pool, &u->job->job);
    limits_end(u->tenant);
    TAILQ_REMOVE(&u->served->front->utilities, u, link);
    free(u);
}

static void on_gone(void *context)
{
    utility_free(context);
}

static void put_text(struct buffer *o, const struct request_job *j)
{
    json_out_raw(o, "{\"prompt\":");
    json_out_string(o, j->items[0].text, j->items[0].n_text);
    json_out_raw(o, "}");
}

static void put_tokens(struct buffer *o, const struct request_job *j)
{
    const struct request_item *item = &j->items[0];
    json_out_raw(o, "{\"count\":");
    json_out_u64(o, item->n_ids);
    json_out_raw(o, ",\"max_model_len\":");
    json_out_u64(o, j->served->facts->max_model_len);
    json_out_raw(o, ",\"tokens\":[");
    for (size_t i = 0; i < item->n_ids; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, item->ids[i]);
    }
    json_out_raw(o, "],\"token_strs\":");
    if (j->want_strings) {
        json_out_raw(o, "[");
        buffer_append(o, j->token_strings, j->n_token_strings);
        json_out_raw(o, "]");
    } else {
        json_out_raw(o, "null");
    }
    json_out_raw(o, "}");
}

static void fail(struct utility *u, const struct api_error *e)
{
    struct http_exchange *x = u->x;
    u->served->counts->n_refused += e->status == 429;
    limits_headers(u->tenant, quire_now_us(), x);
    utility_free(u);
    api_error_reply(x, e);
}

void utilities_end(struct front *f, const struct api_error *e)
{
    struct utility *u;
    while ((u = TAILQ_FIRST(&f->utilities)))
        fail(u, e);
}

static void on_text(void *owner, struct request_job *j)
{
    struct utility *u = owner;
    struct http_exchange *x = u->x;
    uint64_t now_us = quire_now_us();
    u->job = NULL;
    http_body_freed(x);
    if (!j->ok || !limits_prompt(u->tenant, j->items[0].n_ids, now_us, &j->error)) {
        fail(u, &j->error);
    } else {
        limits_headers(u->tenant, now_us, x);
        utility_free(u);
        http_reply(x, 200, "application/json", j->reply.data, j->reply.n);
    }
    request_job_free(j);
}

/* ---- on the pool ---------------------------------------------------------------------------- */

/* The model's name in the body selects another model, too. */
static bool check_model(struct request_job *j, const struct quire_doc *body)
{
    const char *model = NULL;
    if (!json_field_string(body, "model", &model, &j->error))
        return false;
    const struct model_view *other = model ? model_list_other(j->models, j->served, model) : NULL;
    if (other)
        j->served = other;
    return model_name(j->models, j->served, model, &j->error);
}

/* Reads a prompt, or a text under llama.cpp's names: content and add_special, which is off by default. */
static bool read_prompt(struct request_job *j, const struct quire_doc *body)
{
    const char *name = json_field_get(body, "prompt").n ? "prompt" : "content";
    struct quire_value text = json_field_get(body, name);
    if (!text.n)
        return api_bad(&j->error, "prompt", "is missing; /tokenize takes a prompt or messages");
    if (!json_is(text, QUIRE_STRING))
        return api_bad(&j->error, name, "must be a string");
    j->add_special = strcmp(name, "prompt") == 0;
    return request_job_items(j, 1) && json_value_text(text, name, &j->items[0].text, &j->items[0].n_text, &j->error);
}

bool tokenize_read(struct request_job *j, const struct quire_doc *body)
{
    if (!check_model(j, body))
        return false;
    bool ok = json_field_get(body, "messages").n ? chat_read_messages(j, body) : read_prompt(j, body);
    return ok && json_field_bool(body, "add_special", &j->add_special, &j->error) &&
           json_field_bool(body, "add_special_tokens", &j->add_special, &j->error) &&
           json_field_bool(body, "return_token_strs", &j->want_strings, &j->error);
}

bool detokenize_read(struct request_job *j, const struct quire_doc *body)
{
    struct quire_value tokens = json_field_get(body, "tokens");
    if (!check_model(j, body))
        return false;
    if (!json_is(tokens, QUIRE_ARRAY))
        return api_bad(&j->error, "tokens", "must be an array of token ids");
    j->want_text = true;
    return request_job_items(j, 1) && json_field_token_ids(tokens, "tokens", j->served->facts->vocab_size,
                                                           &j->items[0].ids, &j->items[0].n_ids, &j->error);
}

/* ---- beginning ------------------------------------------------------------------------------ */

void utility_start(struct served_model *m, struct http_exchange *x,
                   bool (*read)(struct request_job *j, const struct quire_doc *body),
                   void (*put)(struct buffer *o, const struct request_job *j), bool counts_only)
{
    struct tenant *tenant = front_begin(m, x);
    if (!tenant)
        return;
    struct utility *u = calloc(1, sizeof *u);
    struct request_job *job = u ? request_job_new(m, x, tenant, read, on_text, u) : NULL;
    if (!job) {
        struct api_error e;
        free(u);
        api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    job->put = put;
    job->counts_only = counts_only;
    *u = (struct utility){.served = m, .x = x, .tenant = tenant, .job = job};
    TAILQ_INSERT_TAIL(&m->front->utilities, u, link);
    http_on_gone(x, on_gone, u);
    text_pool_submit(m->front->pool, &job->job);
}

void tokenize_start(struct served_model *m, struct http_exchange *x)
{
    utility_start(m, x, tokenize_read, put_tokens, false);
}

void detokenize_start(struct served_model *m, struct http_exchange *x)
{
    utility_start(m, x, detokenize_read, put_text, false);
}
