/* Routes that need the tokenizer and no engine: /tokenize, /detokenize, and counting for /v1/messages/count_tokens. */
#include "base/clock.h"
#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

struct utility_job {
    struct request_job job; /* first member */
    const struct utility_calls *calls;
    struct buffer reply;
};

struct utility {
    TAILQ_ENTRY(utility) link;
    struct served_model *served;
    struct http_exchange *x;
    struct tenant *tenant;
    struct utility_job *job; /* while it is in the pool */
};

static void utility_free(struct utility *u)
{
    if (u->job)
        text_pool_cancel(u->served->front->pool, &u->job->job.job);
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
    json_out_string(o, j->text->items[0].text, j->text->items[0].n_text);
    json_out_raw(o, ",\"content\":"); /* llama.cpp's name */
    json_out_string(o, j->text->items[0].text, j->text->items[0].n_text);
    json_out_raw(o, "}");
}

static void put_ids(struct buffer *o, const struct request_item *item)
{
    for (size_t i = 0; i < item->n_ids; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, item->ids[i]);
    }
}

static void put_tokens(struct buffer *o, const struct request_job *j)
{
    const struct request_item *item = &j->text->items[0];
    json_out_raw(o, "{\"count\":");
    json_out_u64(o, item->n_ids);
    json_out_raw(o, ",\"max_model_len\":");
    json_out_u64(o, j->served->facts->max_model_len);
    json_out_raw(o, ",\"tokens\":[");
    if (j->text->want_pieces)
        buffer_append(o, j->text->token_strings, j->text->n_token_strings);
    else
        put_ids(o, item);
    json_out_raw(o, "],\"token_strs\":");
    if (j->text->want_strings && !j->text->want_pieces) {
        json_out_raw(o, "[");
        buffer_append(o, j->text->token_strings, j->text->n_token_strings);
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
    const struct buffer *reply = &u->job->reply;
    uint64_t now_us = quire_now_us();
    u->job = NULL;
    http_body_freed(x);
    if (!j->ok || !limits_prompt(u->tenant, j->text->items[0].n_ids, now_us, &j->error)) {
        fail(u, &j->error);
    } else {
        limits_headers(u->tenant, now_us, x);
        utility_free(u);
        http_reply(x, 200, "application/json", reply->data, reply->n);
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
    j->text->add_special = strcmp(name, "prompt") == 0;
    return text_task_items(j->text, 1, &j->error) &&
           json_value_text(text, name, &j->text->items[0].text, &j->text->items[0].n_text, &j->error);
}

/* llama.cpp's with_pieces and parse_special. */
static bool read_pieces(struct request_job *j, const struct quire_doc *body)
{
    struct text_task *t = j->text;
    bool parses = true;
    if (!json_field_bool(body, "with_pieces", &t->want_pieces, &j->error) ||
        !json_field_bool(body, "parse_special", &parses, &j->error))
        return false;
    t->want_strings |= t->want_pieces;
    return parses || api_unsupported(&j->error, "parse_special", "only true is supported");
}

bool tokenize_read(struct request_job *j, const struct quire_doc *body)
{
    if (!check_model(j, body))
        return false;
    bool ok = json_field_get(body, "messages").n ? chat_read_messages(j, body) : read_prompt(j, body);
    return ok && json_field_bool(body, "add_special", &j->text->add_special, &j->error) &&
           json_field_bool(body, "add_special_tokens", &j->text->add_special, &j->error) &&
           json_field_bool(body, "return_token_strs", &j->text->want_strings, &j->error) && read_pieces(j, body);
}

bool detokenize_read(struct request_job *j, const struct quire_doc *body)
{
    struct quire_value tokens = json_field_get(body, "tokens");
    if (!check_model(j, body))
        return false;
    if (!json_is(tokens, QUIRE_ARRAY))
        return api_bad(&j->error, "tokens", "must be an array of token ids");
    j->text->want_text = true;
    return text_task_items(j->text, 1, &j->error) &&
           json_field_token_ids(tokens, "tokens", j->served->facts->vocab_size, &j->text->items[0].ids,
                                &j->text->items[0].n_ids, &j->error);
}

/* ---- the job -------------------------------------------------------------------------------- */

static bool read_body(struct request_job *j, const struct quire_doc *body)
{
    const struct utility_calls *calls = ((struct utility_job *)j)->calls;
    j->text->is_reply = true;
    j->text->counts_only = calls->counts_only;
    return calls->read(j, body);
}

static bool write_reply(struct request_job *j)
{
    struct utility_job *u = (struct utility_job *)j;
    u->calls->put(&u->reply, j);
    return !u->reply.failed || api_no_memory(&j->error);
}

static void free_members(struct request_job *j)
{
    buffer_free(&((struct utility_job *)j)->reply);
}

static const struct request_job_calls job_calls = {sizeof(struct utility_job), read_body, write_reply, free_members};

/* ---- beginning ------------------------------------------------------------------------------ */

void utility_start(struct served_model *m, struct http_exchange *x, const struct utility_calls *calls)
{
    struct tenant *tenant = front_begin(m, x);
    if (!tenant)
        return;
    struct utility *u = calloc(1, sizeof *u);
    struct request_job *job = u ? request_job_new(m, x, tenant, &job_calls, on_text, u) : NULL;
    if (!job) {
        struct api_error e;
        free(u);
        api_no_memory(&e);
        front_refuse(m->front, x, tenant, &e);
        return;
    }
    *u = (struct utility){.served = m, .x = x, .tenant = tenant, .job = (struct utility_job *)job};
    u->job->calls = calls;
    job->shape = calls->shape;
    TAILQ_INSERT_TAIL(&m->front->utilities, u, link);
    http_on_gone(x, on_gone, u);
    text_pool_submit(m->front->pool, &job->job);
}

void tokenize_start(struct served_model *m, struct http_exchange *x)
{
    static const struct utility_calls calls = {tokenize_read, put_tokens, false, &field_shape_tokenize};
    utility_start(m, x, &calls);
}

void detokenize_start(struct served_model *m, struct http_exchange *x)
{
    static const struct utility_calls calls = {detokenize_read, put_text, false, &field_shape_detokenize};
    utility_start(m, x, &calls);
}
