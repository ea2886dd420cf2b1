/* /tokenize and /detokenize: text work without an engine's. */
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

struct utility {
    TAILQ_ENTRY(utility) link;
    struct front *front;
    struct http_exchange *x;
    struct prompt_job *job; /* while it is in the pool */
    bool detokenize;
};

static void utility_free(struct utility *u)
{
    if (u->job)
        text_pool_cancel(u->front->pool, &u->job->job);
    TAILQ_REMOVE(&u->front->utilities, u, link);
    free(u);
}

static void on_gone(void *context)
{
    utility_free(context);
}

static void put_tokens(struct json_out *o, const struct utility *u, const struct prompt_job *job)
{
    const struct prompt_item *item = &job->items[0];
    json_out_raw(o, "{\"count\":");
    json_out_u64(o, item->n_ids);
    json_out_raw(o, ",\"max_model_len\":");
    json_out_u64(o, u->front->max_model_len);
    json_out_raw(o, ",\"tokens\":[");
    for (size_t i = 0; i < item->n_ids; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, item->ids[i]);
    }
    json_out_raw(o, "],\"token_strs\":");
    if (job->want_strings) {
        json_out_raw(o, "[");
        json_out_bytes(o, job->token_strings, job->n_token_strings);
        json_out_raw(o, "]");
    } else {
        json_out_raw(o, "null");
    }
    json_out_raw(o, "}");
}

static void on_text(void *owner, struct prompt_job *job)
{
    struct utility *u = owner;
    struct http_exchange *x = u->x;
    struct json_out o = {0};
    struct api_error e = {.why = job->err};
    int status = job->status;
    if (status == QUIRE_OK && u->detokenize) {
        json_out_raw(&o, "{\"prompt\":");
        json_out_string(&o, job->items[0].text, job->items[0].n_text);
        json_out_raw(&o, "}");
    } else if (status == QUIRE_OK) {
        put_tokens(&o, u, job);
    }
    if (o.failed)
        status = quire_fail(&e.why, QUIRE_NO_MEMORY, "out of memory");
    const char *param = u->detokenize ? "tokens" : job->messages ? "messages" : "prompt";
    u->job = NULL;
    utility_free(u);
    if (status == QUIRE_OK) {
        http_reply(x, 200, "application/json", o.data, o.n);
    } else {
        api_fail_status(&e, status, param);
        api_error_reply(x, &e);
    }
    prompt_job_free(job);
    json_out_free(&o);
}

static struct prompt_job *tokenize_job(struct front *f, json_t *body, struct api_error *e)
{
    struct prompt_job *job;
    bool chat = params_get(body, "messages") != NULL, special = !chat, strings = false;
    const char *text = NULL;
    if (chat) {
        job = chat_job(f, body, e);
    } else {
        /* llama.cpp's names: content and add_special, which is off unless asked for. */
        const char *name = params_get(body, "prompt") ? "prompt" : "content";
        if (!params_string(body, name, &text, e))
            return NULL;
        if (!text) {
            api_bad(e, "prompt", "is missing; /tokenize takes a prompt or messages");
            return NULL;
        }
        if (strcmp(name, "content") == 0)
            special = false;
        job = prompt_job_new(f->text, 1, NULL, NULL);
        if (job)
            job->items[0].text = strdup(text);
        if (!job || !job->items[0].text) {
            prompt_job_free(job);
            api_fail(e, 503, NULL, "out_of_memory", "out of memory");
            return NULL;
        }
        job->items[0].n_text = strlen(text);
    }
    if (job && (!params_bool(body, "add_special", &special, e) ||
                !params_bool(body, "add_special_tokens", &special, e) ||
                !params_bool(body, "return_token_strs", &strings, e))) {
        prompt_job_free(job);
        return NULL;
    }
    if (job) {
        job->add_special = special;
        job->want_strings = strings;
    }
    return job;
}

static struct prompt_job *detokenize_job(struct front *f, json_t *body, struct api_error *e)
{
    const json_t *tokens = params_get(body, "tokens");
    struct prompt_job *job = NULL;
    uint32_t *ids;
    size_t n;
    if (!json_is_array(tokens)) {
        api_bad(e, "tokens", "must be an array of token ids");
        return NULL;
    }
    if (!params_token_ids(tokens, "tokens", f->vocab_size, &ids, &n, e))
        return NULL;
    job = prompt_job_new(f->text, 1, NULL, NULL);
    if (!job) {
        free(ids);
        api_fail(e, 503, NULL, "out_of_memory", "out of memory");
        return NULL;
    }
    job->items[0] = (struct prompt_item){.ids = ids, .n_ids = n};
    job->want_text = true;
    return job;
}

static void start(struct front *f, struct http_exchange *x, bool detokenize)
{
    struct api_error e;
    json_t *body = NULL;
    const char *model = NULL;
    struct prompt_job *job = NULL;
    struct utility *u = NULL;
    if (front_can_serve(f, &e) && front_read_json(x, &body, &e) &&
        params_string(body, "model", &model, &e) && front_model_name(f, model, &e))
        job = detokenize ? detokenize_job(f, body, &e) : tokenize_job(f, body, &e);
    json_decref(body);
    if (job && !(u = calloc(1, sizeof *u))) {
        api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
        prompt_job_free(job);
    }
    if (!u) {
        api_error_reply(x, &e);
        return;
    }
    *u = (struct utility){.front = f, .x = x, .job = job, .detokenize = detokenize};
    TAILQ_INSERT_TAIL(&f->utilities, u, link);
    job->finished = on_text;
    job->owner = u;
    http_drop_body(x);
    http_on_gone(x, on_gone, u);
    text_pool_submit(f->pool, &job->job);
}

void tokenize_start(struct front *f, struct http_exchange *x)
{
    start(f, x, false);
}

void detokenize_start(struct front *f, struct http_exchange *x)
{
    start(f, x, true);
}

