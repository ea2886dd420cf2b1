#include "server/link/engine_client.h"

#include "server/link/engine_greeting.h"
#include "server/link/engine_requests.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/frame_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define HELLO_TIMEOUT_S 5
#define MAX_OUT_BYTES ((size_t)64 << 20)
#define KEEP_BYTES ((size_t)1 << 20)
#define READ_BYTES 65536
#define READS_PER_TURN 4
#define LAST_READS 64

enum client_state { CLIENT_GREETING, CLIENT_WELCOME, CLIENT_READY, CLIENT_GONE };

struct engine_client {
    struct wire_stream *stream;
    enum client_state state;
    struct engine_client_events events;
    void *context;
    struct event *deadline, *broken;
    struct frame_reader in;
    struct buffer out;
    size_t sent;

    struct engine_greeting *greeting; /* until the client is ready */
    struct client_requests *requests;
    uint64_t credit, ungranted; /* the engine's first credit; bytes read since the last CREDIT */
    bool takes_predict; /* the engine takes predictions; one of an older release does not */
    bool takes_hit_report; /* likewise */
    bool stats_asked, spoke;
    bool moved; /* since the last engine_client_moved() */
    const char *given_up; /* why engine_client_give_up() was called; NULL: it was not */
    unsigned depth; /* > 0: within a callback of the loop; freeing and writing wait for its end */
    bool closed;    /* engine_client_close() was called */
    char why[QUIRE_ERROR_BYTES];
};

/* ---- the end ---- */

static void client_free(struct engine_client *c)
{
    struct event *events[] = {c->deadline, c->broken};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i])
            event_free(events[i]);
    }
    wire_stream_close(c->stream);
    frame_reader_free(&c->in);
    buffer_free(&c->out);
    client_requests_free(c->requests);
    engine_greeting_free(c->greeting);
    free(c);
}

void engine_client_close(struct engine_client *c)
{
    if (!c)
        return;
    c->closed = true;
    c->state = CLIENT_GONE;
    if (c->depth == 0)
        client_free(c);
}

/* Ends the connection: each request gets on_lost once, then the owner gets on_closed. */
static void fail_connection(struct engine_client *c, const char *why)
{
    if (c->state == CLIENT_GONE)
        return;
    c->state = CLIENT_GONE;
    snprintf(c->why, sizeof c->why, "%s", why);
    event_del(c->deadline);
    event_del(c->broken);
    wire_stream_close(c->stream);
    c->stream = NULL;
    struct client_request r;
    while (!c->closed && client_request_take(c->requests, &r))
        r.events->on_lost(r.context, c->why);
    if (!c->closed)
        c->events.on_closed(c->context, c->why);
}

/* ---- out ---- */

static void flush(struct engine_client *c)
{
    while (c->state != CLIENT_GONE && c->sent < c->out.n) {
        ssize_t n = wire_stream_send(c->stream, c->out.data + c->sent, c->out.n - c->sent);
        if (n >= 0) {
            c->sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wire_stream_await_space(c->stream);
            return;
        } else if (errno != EINTR) {
            /* Frames that the engine sent before it closed are read first: they may contain the reason. */
            c->sent = c->out.n;
            event_active(c->broken, EV_TIMEOUT, 0);
        }
    }
    c->sent = c->out.n = 0;
    if (c->out.capacity > KEEP_BYTES)
        buffer_free(&c->out);
}

/* Call before a frame is appended. Moves the unsent rest to the front if most was sent. */
static struct buffer *out_buffer(struct engine_client *c)
{
    if (c->sent > c->out.n / 2) {
        memmove(c->out.data, c->out.data + c->sent, c->out.n - c->sent);
        c->out.n -= c->sent;
        c->sent = 0;
    }
    return &c->out;
}

/* Call after a frame was appended. If memory for a frame is out, the connection is closed. */
static void out_changed(struct engine_client *c)
{
    if (c->out.failed)
        event_active(c->broken, EV_TIMEOUT, 0);
    else if (c->depth == 0)
        flush(c);
}

static void end_call(struct engine_client *c)
{
    if (c->depth == 1 && c->state != CLIENT_GONE && !c->out.failed)
        flush(c);
    if (--c->depth == 0 && c->closed)
        client_free(c);
}

/* ---- handshake ---- */

static void answer_greeting(struct engine_client *c, const struct wire_hello *theirs)
{
    struct wire_hello hello;
    struct quire_error err;
    if (engine_greeting_answer(c->greeting, theirs, &hello, &err)) {
        fail_connection(c, err.text);
        return;
    }
    c->state = CLIENT_WELCOME;
    wire_put_hello(out_buffer(c), &hello);
    out_changed(c);
}

static void take_welcome(struct engine_client *c, const struct wire_hello *theirs)
{
    struct quire_error err;
    if (engine_greeting_check(c->greeting, theirs, &err)) {
        fail_connection(c, err.text);
        return;
    }
    event_del(c->deadline);
    engine_greeting_free(c->greeting);
    c->greeting = NULL;
    c->takes_predict = theirs->takes_predict;
    c->takes_hit_report = theirs->takes_hit_report;
    c->state = CLIENT_READY;
    c->events.on_ready(c->context, theirs);
}

/* ---- frames ---- */

static int on_hello(struct engine_client *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    struct wire_hello theirs;
    int status = wire_get_hello(body, n, &theirs, err);
    if (status)
        return status;
    if (c->state == CLIENT_GREETING)
        answer_greeting(c, &theirs);
    else
        take_welcome(c, &theirs);
    return QUIRE_OK;
}

static int on_tokens(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                     struct quire_error *err)
{
    struct wire_token token;
    size_t cursor = 0;
    int found;
    while ((found = wire_next_token(body, header->body_bytes, &cursor, &token, err)) > 0) {
        /* Looked up for each token: the last callback may have cancelled or closed. */
        struct client_request *r = client_request_find(c->requests, header->request);
        if (!r || c->state == CLIENT_GONE)
            return QUIRE_OK;
        if (header->type == WIRE_TOKENS)
            r->events->on_token(r->context, &token);
        else
            r->events->on_prompt_logprob(r->context, &token);
    }
    return -found;
}

static int on_vector(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                     struct quire_error *err)
{
    struct wire_vector vector;
    int status = wire_get_vector(body, header->body_bytes, &vector, err);
    const struct client_request *r = client_request_find(c->requests, header->request);
    if (status || !r)
        return status;
    if (!r->events->on_vector)
        return quire_fail(err, QUIRE_INVALID, "VECTOR: nobody asked for one");
    r->events->on_vector(r->context, &vector);
    return QUIRE_OK;
}

static int on_done(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                   struct quire_error *err)
{
    struct wire_done done;
    int status = wire_get_done(body, header->body_bytes, &done, err);
    struct client_request *found = client_request_find(c->requests, header->request);
    if (status || !found)
        return status;
    struct client_request r = *found;
    if (done.last)
        client_request_remove(c->requests, found);
    r.events->on_done(r.context, &done);
    return QUIRE_OK;
}

static int on_accept(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                     struct quire_error *err)
{
    uint64_t id;
    int status = wire_get_accept(body, header->body_bytes, &id, err);
    struct client_request *r = client_request_find(c->requests, header->request);
    if (!status && r)
        r->events->on_accepted(r->context, id);
    return status;
}

static int on_refuse(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                     struct quire_error *err)
{
    struct wire_refuse refuse;
    int status = wire_get_refuse(body, header->body_bytes, &refuse, err);
    if (!status && header->request == 0) {
        c->events.on_control(c->context, &refuse);
        return QUIRE_OK;
    }
    struct client_request *found = client_request_find(c->requests, header->request);
    if (status || !found)
        return status;
    struct client_request r = *found;
    client_request_remove(c->requests, found);
    r.events->on_refused(r.context, &refuse);
    return QUIRE_OK;
}

static int on_control(struct engine_client *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    const char *command;
    size_t n_command;
    int status = wire_get_control(body, n, &command, &n_command, err);
    if (!status)
        c->events.on_control(c->context, NULL);
    return status;
}

static int on_stats(struct engine_client *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    struct wire_stats stats;
    int status = wire_get_stats(body, n, &stats, err);
    if (status)
        return status;
    c->stats_asked = false;
    c->events.on_stats(c->context, &stats);
    return QUIRE_OK;
}

static int on_drain(struct engine_client *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    int status = wire_get_drain(body, n, err);
    if (!status)
        c->events.on_drain(c->context);
    return status;
}

static int on_error(struct engine_client *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    uint32_t code;
    const char *message;
    size_t n_message;
    char why[QUIRE_ERROR_BYTES];
    int status = wire_get_error(body, n, &code, &message, &n_message, err);
    if (status)
        return status;
    if (code == QUIRE_UNAVAILABLE)
        snprintf(why, sizeof why, "the engine has stopped: %.*s", (int)n_message, message);
    else
        snprintf(why, sizeof why, "the engine closed the connection: %s: %.*s", quire_status_name((int)code),
                 (int)n_message, message);
    fail_connection(c, why);
    return QUIRE_OK;
}

static int on_frame(struct engine_client *c, const struct wire_header *header, const uint8_t *body,
                    struct quire_error *err)
{
    size_t n = header->body_bytes;
    if (header->type == WIRE_ERROR)
        return on_error(c, body, n, err);
    if ((header->type == WIRE_HELLO) != (c->state != CLIENT_READY))
        return quire_fail(err, QUIRE_INVALID, "%s: does not belong here", wire_type_name(header->type));
    switch ((enum wire_type)header->type) {
    case WIRE_HELLO: return on_hello(c, body, n, err);
    case WIRE_ACCEPT: return on_accept(c, header, body, err);
    case WIRE_REFUSE: return on_refuse(c, header, body, err);
    case WIRE_TOKENS:
    case WIRE_PROMPT_LOGPROBS: return on_tokens(c, header, body, err);
    case WIRE_VECTOR: return on_vector(c, header, body, err);
    case WIRE_DONE: return on_done(c, header, body, err);
    case WIRE_STATS: return on_stats(c, body, n, err);
    case WIRE_CONTROL: return on_control(c, body, n, err);
    case WIRE_DRAIN: return on_drain(c, body, n, err);
    case WIRE_SUBMIT:
    case WIRE_PREDICT:
    case WIRE_HIT_REPORT:
    case WIRE_CANCEL:
    case WIRE_CREDIT:
    case WIRE_ERROR: break;
    }
    return quire_fail(err, QUIRE_INVALID, "%s: an engine does not send it", wire_type_name(header->type));
}

static void read_frames(struct engine_client *c)
{
    struct wire_header header;
    const uint8_t *body;
    struct quire_error err;
    while (c->state != CLIENT_GONE) {
        uint32_t max = c->state == CLIENT_READY ? WIRE_MAX_EVENT_BODY : WIRE_MAX_HELLO_BODY;
        bool counted = c->state == CLIENT_READY;
        int status = frame_reader_next(&c->in, max, &header, &body, &err);
        if (status == 0)
            break;
        status = status < 0 ? -status : on_frame(c, &header, body, &err);
        if (status) {
            char why[QUIRE_ERROR_BYTES + 32];
            snprintf(why, sizeof why, "a bad frame from the engine: %s", err.text);
            fail_connection(c, why);
        } else if (counted) {
            c->ungranted += WIRE_HEADER_BYTES + header.body_bytes;
        }
    }
    if (c->state == CLIENT_READY && c->ungranted >= c->credit / 4) {
        wire_put_credit(out_buffer(c), c->ungranted);
        c->ungranted = 0;
        out_changed(c);
    }
}

/* 1: bytes came, and there may be more; 0: no more now; -1: the connection is over. */
static int read_some(struct engine_client *c)
{
    uint8_t *space = frame_reader_space(&c->in, READ_BYTES);
    ssize_t n = space ? wire_stream_receive(c->stream, space, READ_BYTES) : -1;
    if (n > 0) {
        c->spoke = c->moved = true;
        frame_reader_added(&c->in, (size_t)n);
        read_frames(c);
        return n == READ_BYTES;
    }
    if (space && n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    char why[QUIRE_ERROR_BYTES];
    const char *known = c->given_up;
    if (!known && c->events.why_ended)
        known = c->events.why_ended(c->context);
    if (!space)
        snprintf(why, sizeof why, "out of memory");
    else if (known)
        snprintf(why, sizeof why, "%s", known);
    else if (n < 0)
        snprintf(why, sizeof why, "the connection to the engine broke: %m");
    else
        snprintf(why, sizeof why, "the engine closed the connection");
    fail_connection(c, why);
    return -1;
}

static void on_readable(void *context)
{
    struct engine_client *c = context;
    c->depth++;
    for (int i = 0; i < READS_PER_TURN && c->state != CLIENT_GONE; i++) {
        if (read_some(c) <= 0)
            break;
    }
    end_call(c);
}

/* Sends the frames that waited for space, now that the other end has read some. */
static void on_writable(void *context)
{
    struct engine_client *c = context;
    c->moved = true;
    flush(c);
}

static void on_broken(evutil_socket_t fd, short what, void *context)
{
    struct engine_client *c = context;
    (void)fd;
    (void)what;
    c->depth++;
    for (int i = 0; i < LAST_READS && c->state != CLIENT_GONE; i++) {
        if (read_some(c) <= 0)
            break;
    }
    fail_connection(c, c->out.failed ? "out of memory"
                       : c->given_up ? c->given_up
                                     : "the connection to the engine broke");
    end_call(c);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    const struct timeval again = {.tv_sec = HELLO_TIMEOUT_S};
    struct engine_client *c = context;
    (void)fd;
    (void)what;
    c->depth++;
    if (c->spoke || !c->events.on_silent || !c->events.on_silent(c->context))
        fail_connection(c, "the engine did not say HELLO in time");
    else if (c->state != CLIENT_GONE)
        event_add(c->deadline, &again);
    end_call(c);
}

/* ---- calls of the owner ---- */

static int client_start(struct event_base *base, struct engine_client *c, const struct wire_hello *ours,
                        const char *key_file, struct quire_error *err)
{
    struct timeval limit = {.tv_sec = HELLO_TIMEOUT_S};
    int status = engine_greeting_new(ours, key_file, &c->greeting, err);
    if (status)
        return status;
    c->credit = engine_greeting_credit(c->greeting);
    c->deadline = evtimer_new(base, on_deadline, c);
    c->broken = evtimer_new(base, on_broken, c);
    if (!c->stream || !c->requests || !c->deadline || !c->broken ||
        wire_stream_listen(c->stream, on_readable, on_writable, c) || event_add(c->deadline, &limit))
        return quire_fail(err, QUIRE_NO_MEMORY, "engine client: out of memory");
    return QUIRE_OK;
}

int engine_client_open(struct event_base *base, struct wire_stream *stream, const struct wire_hello *ours,
                       const char *key_file, const struct engine_client_events *events, void *context,
                       struct engine_client **out, struct quire_error *err)
{
    *out = NULL;
    struct engine_client *c = calloc(1, sizeof *c);
    if (!c) {
        wire_stream_close(stream);
        return quire_fail(err, QUIRE_NO_MEMORY, "engine client: out of memory");
    }
    c->stream = stream;
    c->events = *events;
    c->context = context;
    c->requests = client_requests_new();
    int status = client_start(base, c, ours, key_file, err);
    if (status) {
        client_free(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

/* If no frame waits, the prompt goes to the socket from where it lies, without a copy. The part that the socket does
 * not accept is copied and waits. */
static int put_submit(struct engine_client *c, uint64_t wire_id, const struct request_spec *spec)
{
    struct buffer *b = out_buffer(c);
    if (b->n > 0 || c->depth > 0)
        return wire_put_submit(b, wire_id, spec);
    size_t at, n_prompt = spec->n_prompt * sizeof *spec->prompt;
    int status = wire_put_submit_around(b, wire_id, spec, &at);
    if (status)
        return status;
    struct iovec parts[] = {{b->data, at}, {(void *)(uintptr_t)spec->prompt, n_prompt}, {b->data + at, b->n - at}};
    ssize_t n_sent = wire_stream_send_parts(c->stream, parts, 3);
    bool all = n_sent >= 0 && (size_t)n_sent == b->n + n_prompt;
    b->n = 0;
    if (all)
        return QUIRE_OK;
    status = wire_put_submit(b, wire_id, spec);
    c->sent = n_sent > 0 && !status ? (size_t)n_sent : 0;
    return status;
}

static int client_submit(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                         const struct completion_events *events, void *context, uint64_t *wire_id,
                         struct quire_error *err)
{
    struct engine_client *c = self;
    (void)terms;
    if (c->state != CLIENT_READY)
        return quire_fail(err, QUIRE_IO, "%s", c->state == CLIENT_GONE ? c->why : "the engine is not ready yet");
    if (c->out.n - c->sent > MAX_OUT_BYTES)
        return quire_fail(err, QUIRE_EXHAUSTED, "the engine does not read its requests");
    struct client_request *r = client_request_add(c->requests);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "engine client: out of memory");
    r->events = events;
    r->context = context;
    *wire_id = r->wire_id;
    int status = put_submit(c, r->wire_id, spec);
    if (status)
        client_request_remove(c->requests, r);
    out_changed(c);
    if (status == QUIRE_INVALID)
        return quire_fail(err, QUIRE_INVALID, "the request is too large for the engine");
    return status ? quire_fail(err, QUIRE_NO_MEMORY, "engine client: out of memory") : QUIRE_OK;
}

/* A slow engine should read requests before predictions. */
static bool client_predict(void *self, uint64_t wire_id, const uint32_t *tokens, uint32_t n)
{
    struct engine_client *c = self;
    const struct wire_predict predict = {.ids = tokens, .n_tokens = n};
    if (c->state != CLIENT_READY || !c->takes_predict || !client_request_find(c->requests, wire_id) ||
        c->out.n - c->sent > MAX_OUT_BYTES || wire_put_predict(out_buffer(c), wire_id, &predict) == QUIRE_INVALID)
        return false;
    out_changed(c);
    return true;
}

static bool client_report_hits(void *self, const uint32_t *served, uint32_t n_served)
{
    struct engine_client *c = self;
    const struct wire_hit_report report = {.words = served, .n_served = n_served};
    if (!c || c->state != CLIENT_READY) /* NULL: upstream_source() without an engine */
        return false;
    if (!c->takes_hit_report)
        return true;
    if (c->out.n - c->sent > MAX_OUT_BYTES || wire_put_hit_report(out_buffer(c), &report) != QUIRE_OK)
        return false;
    out_changed(c);
    return true;
}

static void client_cancel(void *self, uint64_t wire_id, int64_t choice)
{
    struct engine_client *c = self;
    struct client_request *r = client_request_find(c->requests, wire_id);
    if (!r)
        return;
    if (choice < 0)
        client_request_remove(c->requests, r);
    if (c->state != CLIENT_READY)
        return;
    wire_put_cancel(out_buffer(c), wire_id, choice);
    out_changed(c);
}

struct completion_source engine_client_source(struct engine_client *c)
{
    return (struct completion_source){.self = c,
                                      .submit = client_submit,
                                      .predict = client_predict,
                                      .report_hits = client_report_hits,
                                      .cancel = client_cancel};
}

int engine_client_ask_stats(struct engine_client *c, uint32_t n_tenants)
{
    if (c->state != CLIENT_READY)
        return QUIRE_IO;
    if (c->stats_asked)
        return QUIRE_OK;
    c->stats_asked = true;
    wire_put_stats_request(out_buffer(c), n_tenants);
    out_changed(c);
    return QUIRE_OK;
}

int engine_client_control(struct engine_client *c, const char *command)
{
    if (c->state != CLIENT_READY)
        return QUIRE_IO;
    wire_put_control(out_buffer(c), command);
    out_changed(c);
    return QUIRE_OK;
}

void engine_client_drain(struct engine_client *c)
{
    if (c->state != CLIENT_READY)
        return;
    wire_put_drain(out_buffer(c));
    out_changed(c);
}

bool engine_client_spoke(const struct engine_client *c)
{
    return c->spoke;
}

bool engine_client_moved(struct engine_client *c)
{
    const bool moved = c->moved;
    c->moved = false;
    return moved;
}

void engine_client_give_up(struct engine_client *c, const char *why)
{
    if (c->state == CLIENT_GONE)
        return;
    c->given_up = why;
    event_active(c->broken, EV_TIMEOUT, 0);
}

uint32_t engine_client_n_live(const struct engine_client *c)
{
    return client_requests_n(c->requests);
}
