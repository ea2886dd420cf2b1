#include "server/gateway/complete/call.h"

#include "base/clock.h"
#include "server/gateway/complete/completion.h"
#include "server/gateway/complete/sentences.h"
#include "server/gateway/relay/events.h"
#include "server/gateway/remote/remote.h"
#include "server/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REPLY_BYTES ((uint64_t)128 << 20)
#define TICK_US 10000

/* How the events of a stream become the client's. */
struct call_stream {
    struct events_splitter splitter;
    struct sentences sentences;
};

struct call {
    struct complete *c;
    struct http_exchange *x; /* NULL: the reply has ended, or the client has gone */
    struct remote_call *remote;
    struct question q;
    struct key256 key;
    bool is_kept; /* under the key */
    struct buffer body, reply; /* body: borrowed by remote. reply: a whole one */
    struct call_stream *stream; /* owned */
    int status;
    bool is_over;   /* the remote call has ended by itself */
    bool has_begun, is_paused;
    bool has_written; /* since the last bytes arrived */
    uint64_t begun_us;
    TAILQ_ENTRY(call) link;
};

/* ---- the end -------------------------------------------------------------------------------- */

/* The reply has ended, or the client has gone. The memory may still be in use by the callback that ended it. */
static void end(struct call *k)
{
    if (k->x)
        http_on_gone(k->x, NULL, NULL);
    k->x = NULL;
    if (k->remote && !k->is_over)
        remote_cancel(k->remote);
    k->remote = NULL;
    TAILQ_REMOVE(&k->c->calls, k, link);
    TAILQ_INSERT_TAIL(&k->c->ended, k, link);
    event_active(k->c->bury, EV_TIMEOUT, 0);
}

static void free_call(struct call *k)
{
    question_free(&k->q);
    buffer_free(&k->body);
    buffer_free(&k->reply);
    if (k->stream) {
        events_free(&k->stream->splitter);
        sentences_free(&k->stream->sentences);
    }
    free(k->stream);
    free(k);
}

static void on_gone(void *context)
{
    struct call *k = context;
    k->x = NULL;
    end(k);
}

static void copy_header(void *context, const char *name, const char *value)
{
    if (strncasecmp(name, "x-quire-", 8) == 0 || strcasecmp(name, "Retry-After") == 0)
        http_add_header(context, name, value);
}

static void begin_stream(struct call *k)
{
    if (k->has_begun)
        return;
    k->has_begun = true;
    remote_headers(k->remote, copy_header, k->x);
    http_add_header(k->x, "Cache-Control", "no-cache");
    http_stream_begin(k->x, 200, "text/event-stream");
}

static void fail(struct call *k, const struct api_error *e)
{
    struct buffer json = {0}, o = {0};
    struct http_exchange *x = k->x;
    if (!k->has_begun) {
        http_on_gone(x, NULL, NULL);
        k->x = NULL;
        api_error_reply(x, e);
    } else {
        api_error_json(&json, e);
        events_put(&o, "error", json.data, json.failed ? 0 : json.n);
        http_stream_write(x, o.data, o.failed ? 0 : o.n);
        http_on_gone(x, NULL, NULL);
        k->x = NULL;
        http_stream_end(x);
    }
    buffer_free(&json);
    buffer_free(&o);
    end(k);
}

/* ---- a stream ------------------------------------------------------------------------------- */

static void write_piece(struct call *k, const char *text, size_t n)
{
    struct buffer o = {0};
    events_put(&o, "", text, n);
    begin_stream(k);
    http_stream_write(k->x, o.data, o.failed ? 0 : o.n);
    k->has_written = true;
    buffer_free(&o);
}

static void write_sentences(struct call *k, bool is_end)
{
    const char *text;
    size_t n;
    while (sentences_next(&k->stream->sentences, is_end, &text, &n))
        write_piece(k, text, n);
}

static void end_stream(struct call *k)
{
    struct http_exchange *x = k->x;
    write_sentences(k, true);
    write_piece(k, "[DONE]", 6);
    http_on_gone(x, NULL, NULL);
    k->x = NULL;
    http_stream_end(x);
    end(k);
}

/* Returns false once the call has ended. */
static bool on_event(void *context, const char *data, size_t n, const char *name)
{
    struct call *k = context;
    struct api_error e;
    char *text;
    size_t n_text;
    (void)name;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        end_stream(k);
        return false;
    }
    if (!completion_piece(data, n, &text, &n_text, &e)) {
        fail(k, &e);
        return false;
    }
    if (n_text > 0 && !k->q.in_sentences) {
        write_piece(k, text, n_text);
    } else if (n_text > 0 && sentences_add(&k->stream->sentences, text, n_text) == QUIRE_OK) {
        write_sentences(k, false);
    } else if (n_text > 0) {
        api_no_memory(&e);
        fail(k, &e);
        free(text);
        return false;
    }
    free(text);
    return true;
}

static void on_stream_bytes(struct call *k, const char *bytes, size_t n)
{
    struct quire_error err;
    struct api_error e;
    const struct timeval tv = {.tv_usec = TICK_US};
    k->has_written = false;
    const int status = events_push(&k->stream->splitter, bytes, n, on_event, k, &err);
    if (!k->x)
        return;
    if (status != QUIRE_OK) {
        api_fail(&e, 502, NULL, "upstream_error", "the model's stream cannot be read: %.200s", err.text);
        fail(k, &e);
        return;
    }
    if (!k->has_written && bytes[0] == ':') { /* the relay's ping */
        begin_stream(k);
        http_stream_write(k->x, ": ping\n\n", 8);
    }
    if (k->is_paused || !k->has_begun || http_stream_has_space(k->x))
        return;
    k->is_paused = true;
    remote_pause(k->remote, true);
    event_add(k->c->tick, &tv);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

static bool is_hit(const struct remote_call *remote)
{
    const char *how = remote_header(remote, "x-quire-cache");
    return how && (strcmp(how, "exact") == 0 || strcmp(how, "semantic") == 0);
}

static void keep(struct call *k, const struct completion *a, const char *model)
{
    const struct cached_completion answer = {.text = a->content ? a->content : "",
                                             .n = a->n_content,
                                             .model = model,
                                             .cost = a->picodollars,
                                             .input = a->input,
                                             .output = a->output};
    if (k->is_kept)
        answer_cache_add(k->c->answers, &k->key, &answer, quire_now_ms());
}

static void reply(struct call *k)
{
    struct completion a;
    struct api_error e;
    struct buffer o = {0};
    char model[COMPLETION_MODEL_BYTES];
    const bool is_cached = is_hit(k->remote);
    if (!completion_read(&a, k->reply.data, k->reply.n, &e)) {
        completion_free(&a);
        fail(k, &e);
        return;
    }
    completion_model(remote_header(k->remote, "x-quire-route"), model);
    keep(k, &a, model);
    k->c->n_engine_hits += is_cached;
    k->c->n_hits += is_cached;
    k->c->n_misses += !is_cached;
    const struct completion_reply r = {.content = a.content,
                                       .n_content = a.n_content,
                                       .model = is_cached ? NULL : model,
                                       .input = a.input,
                                       .output = a.output,
                                       .cost = a.cost,
                                       .latency_us = quire_now_us() - k->begun_us};
    completion_put(&o, &r);
    completion_free(&a);
    struct http_exchange *x = k->x;
    http_on_gone(x, NULL, NULL);
    k->x = NULL;
    remote_headers(k->remote, copy_header, x);
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
    end(k);
}

/* An error of the gateway: it has the form of every other one. */
static void pass_error(struct call *k)
{
    struct http_exchange *x = k->x;
    http_on_gone(x, NULL, NULL);
    k->x = NULL;
    remote_headers(k->remote, copy_header, x);
    http_reply(x, k->status, "application/json", k->reply.data, k->reply.n);
    end(k);
}

/* ---- the call ------------------------------------------------------------------------------- */

static void on_head(void *context, int status)
{
    struct call *k = context;
    k->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    struct call *k = context;
    struct api_error e;
    if (k->q.is_stream && k->status == 200) {
        on_stream_bytes(k, bytes, n);
    } else if (buffer_append(&k->reply, bytes, n) != QUIRE_OK) {
        api_no_memory(&e);
        fail(k, &e);
    }
}

static void on_end(void *context, enum remote_end how, const char *why)
{
    struct call *k = context;
    struct api_error e;
    k->is_over = true;
    if (how == REMOTE_WHOLE && k->status != 200) {
        pass_error(k);
    } else if (how == REMOTE_WHOLE && !k->q.is_stream) {
        reply(k);
    } else {
        api_fail(&e, 502, NULL, "upstream_error", "the answer was cut: %.200s", why && why[0] ? why : "it has no end");
        fail(k, &e);
    }
}

static void put_line(struct buffer *o, size_t at[], size_t *n, const char *name, const char *value)
{
    if (!value)
        return;
    at[(*n)++] = o->n;
    buffer_append(o, name, strlen(name));
    buffer_append(o, ": ", 2);
    buffer_append(o, value, strlen(value) + 1);
}

/* Passes on the client's key and trace. */
static bool begin_remote(struct call *k, struct quire_error *err)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    static const char *const names[] = {"Authorization", "x-api-key", "traceparent", "tracestate"};
    struct buffer lines = {0};
    const char *headers[8];
    size_t at[8], n = 0;
    put_line(&lines, at, &n, "Content-Type", "application/json");
    put_line(&lines, at, &n, "x-request-id", http_request_id(k->x));
    put_line(&lines, at, &n, "Cache-Control", k->q.use_cache || k->q.is_stream ? NULL : "no-cache, no-store");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put_line(&lines, at, &n, names[i], http_header(k->x, names[i]));
    for (size_t i = 0; i < n && !lines.failed; i++)
        headers[i] = lines.data + at[i];
    const struct remote_request request = {.method = "POST",
                                           .url = "http://localhost/v1/chat/completions",
                                           .headers = headers,
                                           .n_headers = n,
                                           .body = k->body.data,
                                           .n_body = k->body.n,
                                           .max_reply_bytes = k->q.is_stream ? 0 : MAX_REPLY_BYTES,
                                           .socket = k->c->options.socket};
    int status = lines.failed || k->body.failed ? QUIRE_NO_MEMORY : QUIRE_OK;
    if (status == QUIRE_OK)
        status = remote_begin(k->c->options.remote, &request, &events, k, &k->remote, err);
    buffer_free(&lines);
    return status == QUIRE_OK;
}

void call_begin(struct complete *c, struct http_exchange *x, struct question *q, const struct key256 *key)
{
    struct quire_error err = {.text = "out of memory"};
    struct api_error e;
    struct call *k = calloc(1, sizeof *k);
    struct call_stream *stream = calloc(1, sizeof *stream);
    if (!k || !stream) {
        free(k);
        free(stream);
        question_free(q);
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    *k = (struct call){.c = c, .stream = stream, .x = x, .q = *q, .is_kept = key != NULL, .begun_us = quire_now_us()};
    if (key)
        k->key = *key;
    *q = (struct question){0};
    TAILQ_INSERT_TAIL(&c->calls, k, link);
    http_on_gone(x, on_gone, k);
    question_put_body(&k->q, &k->body);
    if (begin_remote(k, &err))
        return;
    api_fail(&e, 503, NULL, "unavailable", "the question cannot be passed on: %.200s", err.text);
    e.retry_ms = 1000;
    fail(k, &e);
}

void calls_bury(struct complete *c)
{
    struct call *k;
    while ((k = TAILQ_FIRST(&c->ended))) {
        TAILQ_REMOVE(&c->ended, k, link);
        free_call(k);
    }
}

void calls_tick(struct complete *c)
{
    const struct timeval tv = {.tv_usec = TICK_US};
    bool is_any = false;
    struct call *k;
    TAILQ_FOREACH(k, &c->calls, link)
    {
        if (k->is_paused && http_stream_has_space(k->x)) {
            k->is_paused = false;
            remote_pause(k->remote, false);
        }
        is_any |= k->is_paused;
    }
    if (is_any)
        event_add(c->tick, &tv);
}

void calls_end_all(struct complete *c)
{
    struct call *k;
    while ((k = TAILQ_FIRST(&c->calls))) {
        k->x = NULL;
        end(k);
    }
    calls_bury(c);
}
