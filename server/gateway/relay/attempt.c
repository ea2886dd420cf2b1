#include "server/front/tenant/inside.h"
#include "server/gateway/relay/attempt.h"

#include "server/gateway/account/ledger.h"
#include "server/gateway/relay/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REPLY_BYTES ((uint64_t)64 << 20)
#define MAX_REPLIES_BYTES ((uint64_t)512 << 20) /* of all, for those that are not small */
#define SMALL_BYTES ((uint64_t)1 << 20)
#define MAX_ERROR_BYTES 65536 /* of an error's body */
#define MAX_HELD_BYTES 262144 /* of a stream before its first token */
#define CONNECT_MS 5000
#define END_MS 1000 /* from a stream's last event to its end */
#define MIN_HIDDEN 8 /* bytes of a key: shorter ones are words such as "none" */
#define MAX_URL 2048

/* ---- the request ---------------------------------------------------------------------------- */

/* An upstream server's url ends where OpenAI's paths begin, mostly in /v1. Other paths are beside it. */
static void put_url(const struct attempt *a, const char *path, char url[MAX_URL])
{
    if (attempt_is_engine(a)) {
        snprintf(url, MAX_URL, "http://localhost%s", path);
        return;
    }
    size_t n = strlen(a->settings->place);
    if (strncmp(path, "/v1/", 4) == 0)
        path += 3;
    else if (n > 3 && strcmp(a->settings->place + n - 3, "/v1") == 0)
        n -= 3;
    snprintf(url, MAX_URL, "%.*s%s", (int)n, a->settings->place, path);
}

/* Header lines in one buffer, each with its NUL. */
struct lines {
    struct buffer text;
    size_t at[16];
    size_t n;
};

static void put_line(struct lines *l, const char *name, const char *value)
{
    if (!value || l->n == sizeof l->at / sizeof *l->at)
        return;
    l->at[l->n++] = l->text.n;
    buffer_append(&l->text, name, strlen(name));
    buffer_append(&l->text, ": ", 2);
    buffer_append(&l->text, value, strlen(value) + 1);
}

/* An engine's front end knows the client's key: it is its tenant and its cache domain. An upstream server never sees it. */
static void put_headers(const struct attempt *a, const struct http_exchange *x, struct lines *l)
{
    static const char *const for_engines[] = {"Authorization", "x-api-key", "cache-control", "x-quire-deadline-ms",
                                              "x-quire-trace"};
    static const char *const for_all[] = {"traceparent", "tracestate"};
    put_line(l, "Content-Type", "application/json");
    put_line(l, "x-request-id", http_request_id(x));
    for (size_t i = 0; i < sizeof for_all / sizeof *for_all; i++)
        put_line(l, for_all[i], http_header(x, for_all[i]));
    for (size_t i = 0; i < sizeof for_engines / sizeof *for_engines && attempt_is_engine(a); i++)
        put_line(l, for_engines[i], http_header(x, for_engines[i]));
    if (attempt_is_engine(a))
        put_line(l, INSIDE_TENANT_HEADER, inside_tenant(x));
    if (attempt_is_engine(a) || !a->settings->key)
        return;
    char bearer[1024];
    snprintf(bearer, sizeof bearer, "Bearer %s", a->settings->key);
    put_line(l, "Authorization", bearer);
}

static const char *socket_of(const struct attempt *a)
{
    const struct gateway_private *engines = &a->g->options.engines;
    return engines->socket ? engines->socket(engines->context, a->model, a->settings) : NULL;
}

/* ---- the reply ------------------------------------------------------------------------------ */

/* Some servers quote a key that they refuse. The gateway's is not for its clients. */
static bool hide_key(const struct attempt *a, char *text, size_t n)
{
    const char *key = attempt_is_engine(a) ? NULL : a->settings->key;
    const size_t n_key = key ? strlen(key) : 0;
    char *at = n_key >= MIN_HIDDEN && text ? memmem(text, n, key, n_key) : NULL;
    const bool found = at != NULL;
    for (; at; at = memmem(at, n - (size_t)(at - text), key, n_key))
        memset(at, '*', n_key);
    return found;
}

/* Reads a whole reply. An error's message has no key, and no reply with an error has one. */
static void read_reply(struct attempt *a, struct events_facts *facts)
{
    if (a->status != 200)
        hide_key(a, a->reply.data, a->reply.n);
    events_read(a->reply.data ? a->reply.data : "", a->reply.n, facts, &a->usage);
    if (hide_key(a, facts->message, strlen(facts->message))) /* it was escaped in the reply */
        buffer_clear(&a->reply);
}

/* What is wrong with a whole reply of status 200. */
static void check_reply(struct attempt *a, const struct events_facts *facts)
{
    struct api_error wrong;
    if (!facts->is_json)
        snprintf(a->why, sizeof a->why, "its reply is not a JSON object");
    else if (facts->is_error)
        snprintf(a->why, sizeof a->why, "an error with status 200: %.200s", facts->message);
    else if (a->request->is_stream)
        snprintf(a->why, sizeof a->why, "it sent no stream, although one was requested");
    else if (a->stream->dialect.is_on && !dialect_reply(&a->stream->dialect, &a->reply, &wrong))
        snprintf(a->why, sizeof a->why, "%.250s", wrong.why.text);
}

/* Ends the attempt. The owner may free the attempt's owner in on_end. */
static void end(struct attempt *a, enum remote_end how, const char *why)
{
    struct attempt_end out = {.reply = &a->reply};
    struct verdict_reply r = {.status = a->status,
                              .end = how,
                              .why = why,
                              .wrong = a->why,
                              .retry_after = a->call ? remote_header(a->call, "Retry-After") : NULL,
                              .target = a->settings->name,
                              .is_full = a->is_full,
                              .is_engine = attempt_is_engine(a)};
    if (!a->is_events && how == REMOTE_WHOLE && a->status > 0) {
        read_reply(a, &r.facts);
        if (a->status == 200)
            check_reply(a, &r.facts);
    }
    verdict_of(&r, &out);
    a->has_ended = true;
    a->events->on_end(a->context, &out);
}

/* Ends the attempt now, because of what arrived. */
static void give_up(struct attempt *a, enum remote_end how, const char *why)
{
    struct remote_call *call = a->call;
    end(a, how, why); /* reads the call's headers */
    a->call = NULL;
    remote_cancel(call);
}

static void on_head(void *context, int status)
{
    struct attempt *a = context;
    const char *type = remote_header(a->call, "Content-Type"), *layer = remote_header(a->call, "x-quire-cache");
    a->status = status;
    a->is_events = status == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
    if (layer && attempt_is_engine(a))
        snprintf(a->layer, sizeof a->layer, "%s", layer);
    if (a->is_events && !a->request->is_stream)
        snprintf(a->why, sizeof a->why, "it sent a stream that was not requested");
}

/* Appends an event with the request's cost in its usage. */
static void put_with_cost(struct attempt *a, const char *name, const char *data, size_t n,
                          const struct events_facts *facts)
{
    struct buffer with = {0};
    attempt_put_cost(a, data, n, facts, &with);
    events_put(&a->reply, name, with.data, with.n);
    a->reply.failed |= with.failed;
    buffer_free(&with);
}

/* The cost of the tokens so far. */
static void cost_of(const struct attempt *a, char money[LEDGER_MONEY_BYTES])
{
    const struct ledger_usage usage = {
        .input = a->usage.input, .cached_input = a->usage.cached_input, .output = a->usage.output};
    ledger_money(attempt_is_cached(a) ? 0 : ledger_cost(&a->model->price, &usage), money);
}

static void put_event(struct attempt *a, const char *name, const char *data, size_t n, const struct events_facts *facts)
{
    if (facts->n_usage > 0 && a->usage.is_set && a->model->price.is_set && strcmp(name, "message_start") != 0)
        put_with_cost(a, name, data, n, facts);
    else
        events_put(&a->reply, name, data, n);
}

/* An event, or the end of the events, in the client's API. */
static bool translate(struct attempt *a, const char *data, size_t n, bool is_done)
{
    struct api_error wrong;
    char money[LEDGER_MONEY_BYTES];
    cost_of(a, money);
    if (is_done ? dialect_end(&a->stream->dialect, a->is_done, a->model->price.is_set ? money : NULL, &a->reply, &wrong)
                : dialect_event(&a->stream->dialect, data, n, &a->reply, &wrong))
        return true;
    snprintf(a->why, sizeof a->why, "%.250s", wrong.why.text);
    return false;
}

/* A stream of Responses has no [DONE]. */
static bool is_last(const struct attempt *a, const struct events_facts *facts)
{
    return facts->is_done || (facts->has_finish && a->request->api == RELAY_RESPONSES);
}

static bool on_event(void *context, const char *data, size_t n, const char *name)
{
    struct attempt *a = context;
    struct events_facts facts;
    if (a->is_complete)
        return true;
    if (!name[0] && !a->stream->dialect.is_on && repeat_is(a->stream->repeat, data, n)) {
        a->n_events++;
        buffer_append(&a->reply, "data: ", 6);
        buffer_append(&a->reply, data, n);
        buffer_append(&a->reply, "\n\n", 2);
        return true;
    }
    events_read(data, n, &facts, &a->usage);
    if (!facts.is_json && !facts.is_done) {
        snprintf(a->why, sizeof a->why, "its stream has an event that is not JSON");
        return false;
    }
    if (facts.is_error) {
        hide_key(a, facts.message, strlen(facts.message));
        snprintf(a->why, sizeof a->why, "%.250s", facts.message);
        return false;
    }
    a->is_done |= facts.is_done || facts.has_finish;
    a->is_complete = is_last(a, &facts);
    if (a->is_complete)
        remote_end_within(a->call, END_MS);
    a->has_token |= facts.has_token;
    a->n_events += facts.has_token;
    if (a->stream->dialect.is_on)
        return translate(a, data, n, facts.is_done);
    repeat_learn(a->stream->repeat, data, n, &facts);
    if (!facts.is_usage_only || !a->adds_usage)
        put_event(a, name, data, n, &facts);
    return true;
}

/* Passes on what is held, once the first token came. */
static void pass(struct attempt *a)
{
    if (a->reply.n > 0)
        a->events->on_text(a->context, a->reply.data, a->reply.n);
    buffer_clear(&a->reply);
}

static void on_events(struct attempt *a, const char *bytes, size_t n)
{
    struct quire_error err;
    if (!a->why[0] && events_push(&a->stream->splitter, bytes, n, on_event, a, &err) != QUIRE_OK)
        snprintf(a->why, sizeof a->why, "its stream cannot be read: %.200s", err.text);
    if (!a->why[0] && !a->has_token && a->reply.n > MAX_HELD_BYTES)
        snprintf(a->why, sizeof a->why, "its stream has %u bytes and no token", MAX_HELD_BYTES);
    if (a->reply.failed)
        snprintf(a->why, sizeof a->why, "out of memory");
    if (a->has_token || a->is_done)
        pass(a);
    if (a->why[0])
        give_up(a, REMOTE_INVALID, a->why);
}

/* n more bytes of a whole reply. */
static void count_reply(struct attempt *a, size_t n)
{
    a->n_counted += n;
    a->g->reply_bytes += n;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    struct attempt *a = context;
    if (a->is_events) {
        on_events(a, bytes, n);
        return;
    }
    if (a->status != 200 && a->reply.n + n > MAX_ERROR_BYTES)
        n = MAX_ERROR_BYTES - a->reply.n;
    if (a->reply.n + n > MAX_REPLY_BYTES)
        give_up(a, REMOTE_INVALID, "it is larger than 64 MiB");
    else if ((a->is_full = a->reply.n + n > SMALL_BYTES && a->g->reply_bytes + n > MAX_REPLIES_BYTES))
        give_up(a, REMOTE_INVALID, "");
    else if (buffer_append(&a->reply, bytes, n) != QUIRE_OK)
        give_up(a, REMOTE_INVALID, "out of memory");
    else
        count_reply(a, n);
}

static void on_end(void *context, enum remote_end how, const char *why)
{
    struct attempt *a = context;
    if (a->is_events && how == REMOTE_WHOLE && !a->is_done)
        snprintf(a->why, sizeof a->why, "its stream ended before the end of the answer");
    if (a->is_events && a->is_done)
        how = REMOTE_WHOLE; /* the answer is complete, however the connection ended */
    if (a->is_events && how == REMOTE_WHOLE && !a->why[0] && a->stream->dialect.is_on)
        translate(a, NULL, 0, true);
    if (a->is_events && how == REMOTE_WHOLE && !a->why[0])
        pass(a);
    end(a, how, why);
    a->call = NULL;
}

/* ---- public --------------------------------------------------------------------------------- */

void attempt_put_cost(const struct attempt *a, const char *data, size_t n, const struct events_facts *facts,
                      struct buffer *out)
{
    char money[LEDGER_MONEY_BYTES];
    const size_t brace = facts->usage_at + facts->n_usage - 1;
    const size_t at = facts->n_cost > 0 ? facts->cost_at : brace; /* the server's own cost is replaced */
    cost_of(a, money);
    buffer_append(out, data, at);
    if (facts->n_cost == 0)
        buffer_append(out, ",\"cost\":", 8);
    buffer_append(out, money, strlen(money));
    buffer_append(out, data + at + facts->n_cost, n - at - facts->n_cost);
}

bool attempt_is_cached(const struct attempt *a)
{
    return strcmp(a->layer, "exact") == 0 || strcmp(a->layer, "semantic") == 0;
}

/* The body for the target, in its API. */
static bool put_body(struct attempt *a, const struct attempt_request *request, const char *name, struct api_error *e)
{
    const struct relay_body *b = request->body;
    const struct relay_target_body how = {
        .model = name, .adds_usage = a->adds_usage, .max_tokens = a->model->max_tokens};
    if (!attempt_is_engine(a) && dialect_lacks(b->api, a->settings->name, e))
        return false;
    if (!attempt_is_engine(a) && dialect_is_needed(b->api))
        return dialect_begin(&a->stream->dialect, b, name, a->model->name, http_request_id(request->x), &a->body, e);
    relay_body_write(b, &how, &a->body);
    return true;
}

/* Sends a body to the target. */
static bool send_body(const struct attempt *a, const struct buffer *body, const struct remote_events *events,
                      void *context, struct remote_call **call, struct quire_error *err)
{
    const char *headers[16];
    char url[MAX_URL];
    struct lines lines = {0};
    put_url(a, a->stream->dialect.is_on ? DIALECT_PATH : a->path, url);
    put_headers(a, a->x, &lines);
    for (size_t k = 0; k < lines.n; k++)
        headers[k] = lines.text.data + lines.at[k];
    const uint32_t timeout_ms = attempt_is_engine(a) ? 0 : a->g->options.upstream_timeout_ms;
    const struct remote_request q = {.method = "POST",
                                     .url = url,
                                     .headers = headers,
                                     .n_headers = lines.n,
                                     .body = body->data,
                                     .n_body = body->n,
                                     .connect_ms = CONNECT_MS,
                                     .first_byte_ms = timeout_ms,
                                     .silence_ms = timeout_ms,
                                     .socket = attempt_is_engine(a) ? socket_of(a) : NULL};
    int status = lines.text.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
    if (status == QUIRE_OK)
        status = remote_begin(a->g->remote, &q, events, context, call, err);
    buffer_free(&lines.text);
    return status == QUIRE_OK;
}

/* ---- a batch -------------------------------------------------------------------------------- */

static bool send_shared(struct shared_member *m, const struct buffer *body, const struct remote_events *events,
                        void *context, struct remote_call **call, struct quire_error *why)
{
    return send_body(m->owner, body, events, context, call, why);
}

static void on_shared_end(struct shared_member *m, enum remote_end how, const char *why, int status,
                          struct buffer *reply, const char *wrong)
{
    struct attempt *a = m->owner;
    const struct buffer mine = *reply;
    *reply = (struct buffer){0};
    a->reply = mine;
    a->status = status;
    snprintf(a->why, sizeof a->why, "%s", a->reply.failed ? "out of memory" : wrong);
    end(a, how, why);
}

/* Whether the request waits for others, to be sent with them. */
static bool joins(struct attempt *a, const void *target)
{
    const struct gateway_batching *batching = &a->model->batching;
    const bool is_kind = a->request->api == RELAY_COMPLETIONS || a->request->api == RELAY_EMBEDDINGS;
    const enum joined_kind kind = a->request->api == RELAY_EMBEDDINGS ? JOINED_EMBEDDINGS : JOINED_COMPLETIONS;
    char where[40];
    if (attempt_is_engine(a) || batching->max_batch_size < 2 || !is_kind)
        return false;
    struct joined_body body;
    if (!joined_read(kind, a->body.data, a->body.n, &body) || !(a->seat = calloc(1, sizeof *a->seat)))
        return false;
    *a->seat = (struct shared_member){
        .owner = a, .body = body, .kind = kind, .send = send_shared, .on_end = on_shared_end};
    snprintf(where, sizeof where, "%d %p", kind, target);
    const struct key256 key = joined_key(&body, where);
    const struct batch_terms terms = {batching->max_batch_size, batching->max_wait_ms};
    return shared_join(a->g->shared, a->seat, &key, terms);
}

bool attempt_begin(struct attempt *a, struct gateway *g, const struct attempt_request *request,
                   const struct pool_model *model, uint32_t i, const struct attempt_events *events, void *context,
                   struct api_error *e)
{
    static const struct remote_events calls = {on_head, on_body, on_end};
    const struct relay_body *b = request->body;
    const struct gateway_target *target = &model->model->targets[i];
    struct quire_error err;
    a->g = g;
    a->events = events;
    a->context = context;
    a->model = model->model;
    a->settings = target;
    a->request = b;
    a->x = request->x;
    a->path = request->path;
    a->stream = calloc(1, sizeof *a->stream);
    if (a->stream)
        a->stream->repeat = calloc(1, sizeof *a->stream->repeat);
    if (!a->stream || !a->stream->repeat)
        return api_no_memory(e);
    a->adds_usage = b->is_stream && !b->wants_usage && (b->api == RELAY_CHAT || b->api == RELAY_COMPLETIONS);
    const char *name = target->kind == GATEWAY_TARGET_URL && target->upstream_model ? target->upstream_model
                                                                                    : a->model->name;
    if (!put_body(a, request, name, e))
        return false;
    if (a->body.failed)
        return api_no_memory(e);
    if (attempt_is_engine(a) && !socket_of(a))
        return api_fail(e, 503, NULL, "engine_unavailable", "target %.60s has no engine", target->name);
    if (joins(a, model->targets[i]) || send_body(a, &a->body, &calls, a, &a->call, &err))
        return true;
    return api_fail(e, 502, NULL, "upstream_unreachable", "target %.60s: %.200s", target->name, err.text);
}

void attempt_cancel(struct attempt *a)
{
    if (a->seat)
        shared_leave(a->g->shared, a->seat);
    if (a->call && !a->has_ended)
        remote_cancel(a->call);
    a->call = NULL;
}

void attempt_free(struct attempt *a)
{
    attempt_cancel(a);
    if (a->g)
        a->g->reply_bytes -= a->n_counted;
    free(a->seat);
    buffer_free(&a->body);
    buffer_free(&a->reply);
    if (a->stream) {
        if (a->stream->repeat)
            repeat_free(a->stream->repeat);
        free(a->stream->repeat);
        events_free(&a->stream->splitter);
        dialect_free(&a->stream->dialect);
    }
    free(a->stream);
    *a = (struct attempt){0};
}
