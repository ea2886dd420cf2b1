/* One connection: bytes in, bytes out, time limits. */
#include "engine/engine.h"
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 65536
#define READS_PER_TURN 4 /* then the loop serves the other connections */
#define KEEP_BYTES ((size_t)1 << 20)

static void on_readable(void *context);
static void on_writable(void *context);
static void on_deadline(evutil_socket_t fd, short what, void *context);

static void set_deadline(struct connection *c, uint32_t ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (int)(ms % 1000) * 1000};
    event_add(c->deadline, &time);
}

static void connection_free(struct connection *c)
{
    if (c->deadline)
        event_free(c->deadline);
    wire_stream_close(c->stream);
    frame_reader_free(&c->in);
    buffer_free(&c->out);
    buffer_free(&c->pending);
    request_list_free(&c->requests);
    free(c);
}

int connection_open(struct daemon *d, struct wire_stream *stream, const struct key256 *key, struct quire_error *err)
{
    /* Accept up to twice the limit: those above it only receive an ERROR and linger for a second. */
    bool room = !d->finishing && d->n_connections / 2 < d->options.max_connections;
    struct connection *c = room && stream ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        wire_stream_close(stream);
        return quire_fail(err, QUIRE_EXHAUSTED, "connection: no room for another one");
    }
    c->d = d;
    c->stream = stream;
    c->key = key;
    request_list_init(&c->requests);
    atomic_init(&c->backlog, 0);
    c->deadline = evtimer_new(d->base, on_deadline, c);
    if (!c->deadline || wire_stream_listen(stream, on_readable, on_writable, c)) {
        connection_free(c);
        return quire_fail(err, QUIRE_NO_MEMORY, "connection: out of memory");
    }
    bool full = d->n_connections >= d->options.max_connections;
    c->next = d->connections;
    if (c->next)
        c->next->previous = c;
    d->connections = c;
    d->n_connections++;
    if (full) {
        connection_fail(c, QUIRE_EXHAUSTED, "too many connections");
        return QUIRE_OK;
    }
    set_deadline(c, d->options.hello_timeout_ms);
    d->events.opened(c);
    wire_stream_await_space(stream);
    return QUIRE_OK;
}

/* Removes c from everything through which the sink can reach a connection: requests, replies and the dirty list. */
static void drop_requests(struct connection *c)
{
    struct daemon *d = c->d;
    for (;;) {
        pthread_mutex_lock(&d->mutex);
        c->overflowed = true;
        buffer_free(&c->pending);
        control_forget(c);
        struct live_request *request = c->requests.n ? &d->requests.slots[c->requests.first] : NULL;
        uint64_t engine_id = request ? request->engine_id : 0;
        if (request)
            request_orphan(&d->requests, &c->requests, request);
        pthread_mutex_unlock(&d->mutex);
        if (!engine_id)
            break;
        if (d->engine)
            engine_cancel(d->engine, engine_id);
    }
    pthread_mutex_lock(&d->mutex);
    struct connection **at = &d->first_dirty;
    while (c->dirty && *at != c)
        at = &(*at)->next_dirty;
    if (c->dirty)
        *at = c->next_dirty;
    c->dirty = false;
    pthread_mutex_unlock(&d->mutex);
}

void connection_close(struct connection *c)
{
    struct daemon *d = c->d;
    drop_requests(c);
    if (c->previous)
        c->previous->next = c->next;
    else
        d->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    d->n_connections--;
    connection_free(c);
    d->events.changed(d);
}

struct buffer *connection_out_begin(struct connection *c)
{
    c->out.n = c->released;
    return &c->out;
}

void connection_out_end(struct connection *c)
{
    c->released = c->out.n;
}

void connection_fail(struct connection *c, enum quire_status status, const char *message)
{
    if (c->state == CONNECTION_CLOSING)
        return;
    c->state = CONNECTION_CLOSING;
    drop_requests(c);
    struct buffer *b = connection_out_begin(c);
    if (message)
        wire_put_error(b, (uint32_t)status, message);
    connection_out_end(c);
    set_deadline(c, DAEMON_LINGER_MS);
    wire_stream_await_space(c->stream);
}

/* ---- out ---- */

/* Moves the queued frames into `out`. Returns false if the connection accepts no more. */
static bool take_pending(struct connection *c)
{
    struct daemon *d = c->d;
    pthread_mutex_lock(&d->mutex);
    bool good = !c->overflowed;
    if (good && c->sent == c->out.n) {
        struct buffer empty = c->out;
        empty.n = 0;
        c->out = c->pending;
        c->pending = empty;
        c->sent = c->released = 0;
    } else if (good && c->pending.n) {
        if (c->sent > c->out.n / 2) {
            memmove(c->out.data, c->out.data + c->sent, c->out.n - c->sent);
            c->out.n -= c->sent;
            c->released -= c->sent;
            c->sent = 0;
        }
        good = buffer_append(&c->out, c->pending.data, c->pending.n) == QUIRE_OK;
        c->pending.n = 0;
    }
    /* Store before unlocking, so that every byte is always in one of the two counts. */
    atomic_store_explicit(&c->backlog, c->out.n - c->sent, memory_order_relaxed);
    pthread_mutex_unlock(&d->mutex);
    return good;
}

/* Releases only whole frames, so that ERROR can always follow. */
static void release(struct connection *c)
{
    while (c->released < c->out.n) {
        uint64_t n = (uint64_t)WIRE_HEADER_BYTES + wire_u32(c->out.data + c->released, 0);
        if (n > c->credit)
            break;
        c->credit -= n;
        c->released += (size_t)n;
    }
}

/* Returns false if the peer has closed. */
static bool write_released(struct connection *c)
{
    while (c->sent < c->released) {
        ssize_t n = wire_stream_send(c->stream, c->out.data + c->sent, c->released - c->sent);
        if (n >= 0) {
            c->sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wire_stream_await_space(c->stream);
            break;
        } else if (errno != EINTR) {
            return false;
        }
    }
    if (c->sent == c->out.n) {
        c->sent = c->released = c->out.n = 0;
        if (c->out.capacity > KEEP_BYTES)
            buffer_free(&c->out);
    }
    atomic_store_explicit(&c->backlog, c->out.n - c->sent, memory_order_relaxed);
    return true;
}

static bool all_over(struct connection *c)
{
    pthread_mutex_lock(&c->d->mutex);
    bool over = c->requests.n == 0 && c->n_answers == 0 && c->pending.n == 0 && c->out.n == 0;
    pthread_mutex_unlock(&c->d->mutex);
    return over;
}

void connection_flush(struct connection *c)
{
    struct daemon *d = c->d;
    if (c->state == CONNECTION_READY) {
        if (take_pending(c))
            release(c);
        else
            connection_fail(c, QUIRE_EXHAUSTED, "too slow: more was waiting for this client than is kept for one");
    }
    if (!write_released(c)) {
        connection_close(c);
        return;
    }
    if (c->client_drained && c->state == CONNECTION_READY && all_over(c))
        connection_fail(c, QUIRE_OK, NULL);
    if (c->state == CONNECTION_CLOSING && c->sent == c->released && !c->end_sent) {
        wire_stream_end(c->stream);
        c->end_sent = true;
    }
    d->events.changed(d);
}

static void on_writable(void *context)
{
    connection_flush(context);
}

/* ---- in ---- */

static void read_frames(struct connection *c)
{
    struct wire_header header;
    const uint8_t *body;
    struct quire_error err;
    int found;
    while (c->state != CONNECTION_CLOSING) {
        uint32_t max = c->state == CONNECTION_GREETED ? WIRE_MAX_HELLO_BODY : WIRE_MAX_BODY;
        found = frame_reader_next(&c->in, max, &header, &body, &err);
        if (found == 0)
            return;
        if (found < 0)
            connection_fail(c, (enum quire_status) - found, err.text);
        else
            c->d->events.frame(c, &header, body);
    }
}

/* Within one process, a request is read where the client wrote it. */
static bool exchange(struct connection *c)
{
    struct buffer *empty = c->state != CONNECTION_CLOSING ? frame_reader_empty(&c->in) : NULL;
    return empty && wire_stream_exchange(c->stream, empty, READS_PER_TURN * READ_BYTES) > 0;
}

/* Returns 1 if bytes arrived and more may follow, 0 if there are no more now, -1 at the end. */
static int read_some(struct connection *c)
{
    if (exchange(c)) {
        read_frames(c);
        return 0;
    }
    uint8_t *space = frame_reader_space(&c->in, READ_BYTES);
    if (!space)
        return -1;
    ssize_t n = wire_stream_receive(c->stream, space, READ_BYTES);
    if (n > 0) {
        if (c->state != CONNECTION_CLOSING)
            frame_reader_added(&c->in, (size_t)n);
        read_frames(c);
        return n == READ_BYTES;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return -1;
}

static void on_readable(void *context)
{
    struct connection *c = context;
    for (int i = 0; i < READS_PER_TURN; i++) {
        int got = read_some(c);
        if (got < 0) {
            connection_close(c);
            return;
        }
        if (got == 0)
            break;
    }
    connection_flush(c);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    struct connection *c = context;
    (void)fd;
    (void)what;
    if (c->state != CONNECTION_GREETED) {
        connection_close(c);
        return;
    }
    char message[64];
    snprintf(message, sizeof message, "no HELLO within %u ms", c->d->options.hello_timeout_ms);
    connection_fail(c, QUIRE_INVALID, message);
}
