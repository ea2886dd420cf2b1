#include "server/gateway/relay/relay_internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_REPLY 16384 /* a copy costs less than a reference */
#define MAX_HEADER 400

/* ---- headers -------------------------------------------------------------------------------- */

/* Names come from the file, and could contain what a header may not. */
static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127)
            *text = '?';
}

static void put_headers(struct relay *r)
{
    char route[MAX_HEADER];
    const char *path = r->path;
    if (r->candidates.n > 0) {
        snprintf(route, sizeof route, "model=%.100s; target=%.100s; why=%s", candidates_model(r)->model->name,
                 r->shown ? r->shown->name : "none", r->candidates.why);
        clean(route);
        http_add_header(r->x, "x-quire-route", route);
    }
    if (r->part) {
        snprintf(route, sizeof route, "experiment=%.128s; arm=%.128s", r->part->experiment->model->name,
                 r->part->experiment->trial->arms[r->part->arm].name);
        http_add_header(r->x, "x-quire-experiment", route); /* names: no character has to be replaced */
    }
    if (r->budget_warning[0])
        http_add_header(r->x, "x-quire-budget-warning", r->budget_warning);
    if (api_is_anthropic(path))
        http_add_header(r->x, "request-id", http_request_id(r->x));
    if (r->now.attempt)
        attempt_headers(r->now.attempt, r->x);
}

static void begin_stream(struct relay *r)
{
    if (r->reply.has_begun)
        return;
    r->reply.has_begun = true;
    r->reply.status = 200;
    put_headers(r);
    http_add_header(r->x, "Cache-Control", "no-cache");
    http_stream_begin(r->x, 200, "text/event-stream");
}

/* ---- a stream ------------------------------------------------------------------------------- */

void client_text(struct relay *r, const char *bytes, size_t n)
{
    begin_stream(r);
    r->reply.has_text = true;
    r->reply.wrote_ms = quire_now_ms();
    http_stream_write(r->x, bytes, n);
}

void client_ping(struct relay *r, uint64_t now_ms)
{
    begin_stream(r);
    /* A comment: an event without data would end the stream in some clients. */
    http_stream_write(r->x, ": ping\n\n", 8);
    r->reply.wrote_ms = now_ms;
}

void client_end_stream(struct relay *r)
{
    begin_stream(r);
    http_on_gone(r->x, NULL, NULL);
    http_stream_end(r->x);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* An error in a stream that has begun, as the front end sends it. */
static void error_event(const struct relay *r, const struct api_error *e, struct buffer *o)
{
    switch (r->body->api) {
    case RELAY_MESSAGES:
        json_out_raw(o, "event: error\ndata: ");
        api_error_json_anthropic(o, e, http_request_id(r->x));
        json_out_raw(o, "\n\n");
        break;
    case RELAY_RESPONSES:
        json_out_raw(o, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":");
        json_out_text_or_null(o, e->code);
        json_out_raw(o, ",\"message\":");
        json_out_text(o, e->why.text);
        json_out_raw(o, ",\"param\":null}\n\n");
        break;
    default:
        json_out_raw(o, "data: ");
        api_error_json(o, e);
        json_out_raw(o, "\n\ndata: [DONE]\n\n");
        break;
    }
}

void client_error(struct relay *r, const struct api_error *e)
{
    struct buffer o = {0};
    http_on_gone(r->x, NULL, NULL);
    if (!r->reply.has_begun) {
        r->reply.status = e->status;
        put_headers(r);
        api_error_reply(r->x, e);
        return;
    }
    error_event(r, e, &o);
    if (!o.failed)
        http_stream_write(r->x, o.data, o.n);
    http_stream_end(r->x);
    buffer_free(&o);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

/* A reply that its client has not taken yet. It stays in the gateway's count of whole replies. */
struct large {
    struct gateway *g;
    char *bytes; /* n, owned */
    size_t n;
};

static void large_gone(void *context)
{
    struct large *l = context;
    l->g->reply_bytes -= l->n;
    free(l->bytes);
    free(l);
}

void client_whole(struct relay *r, int status, struct buffer *body)
{
    static const char type[] = "application/json";
    r->reply.status = status;
    http_on_gone(r->x, NULL, NULL);
    put_headers(r);
    struct large *l = body->n > SMALL_REPLY ? malloc(sizeof *l) : NULL;
    if (!l) {
        http_reply(r->x, status, type, body->data, body->n);
        return;
    }
    *l = (struct large){r->g, body->data, body->n};
    *body = (struct buffer){0};
    l->g->reply_bytes += l->n;
    http_reply_large(r->x, status, type, l->bytes, l->n, large_gone, l);
}
