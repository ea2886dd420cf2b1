#include "engine/engine.h"
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"
#include "server/wire/encode.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void check_idle(struct daemon *d);

static void set_timer(struct event *timer, uint32_t ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (int)(ms % 1000) * 1000};
    event_add(timer, &time);
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    struct daemon *d = context;
    struct connection *c;
    (void)fd;
    (void)what;
    /* Clear the flag before walking the list: a later change then wakes the loop again. */
    pthread_mutex_lock(&d->mutex);
    d->wake_sent = false;
    pthread_mutex_unlock(&d->mutex);
    while ((c = queue_next_dirty(d)) != NULL)
        connection_flush(c);
    check_idle(d);
}

static void on_idle(evutil_socket_t fd, short what, void *context)
{
    struct daemon *d = context;
    (void)fd;
    (void)what;
    d->options.on_idle(d->options.context);
}

/* The client sees the end of the stream and closes. Closing here first could lose bytes that a TCP client has not
 * read. */
static void finish(struct daemon *d)
{
    d->finishing = true;
    for (struct connection *c = d->connections; c; c = c->next)
        connection_fail(c, QUIRE_OK, NULL);
}

static void on_drain_linger(evutil_socket_t fd, short what, void *context)
{
    struct daemon *d = context;
    (void)fd;
    (void)what;
    if (!d->finishing)
        finish(d);
    check_idle(d);
}

static void take_defaults(struct daemon_options *o)
{
    o->max_connections = o->max_connections ? o->max_connections : 64;
    o->max_requests = o->max_requests ? o->max_requests : 4096;
    o->max_queued_bytes = o->max_queued_bytes ? o->max_queued_bytes : (size_t)8 << 20;
    o->hello_timeout_ms = o->hello_timeout_ms ? o->hello_timeout_ms : 5000;
}

int daemon_create(struct event_base *base, const struct daemon_options *options, struct daemon **out,
                  struct quire_error *err)
{
    *out = NULL;
    struct daemon *d = calloc(1, sizeof *d);
    if (!d || quire_hash_init()) {
        free(d);
        return quire_fail(err, QUIRE_NO_MEMORY, "daemon: out of memory");
    }
    d->base = base;
    d->events = (struct connection_events){session_greet, session_frame, check_idle};
    d->options = *options;
    take_defaults(&d->options);
    d->requests.first_free = NO_REQUEST;
    pthread_mutex_init(&d->mutex, NULL);
    d->model = strdup(options->model ? options->model : "");
    /* Each write to an eventfd is an edge. Nothing reads it; its count would overflow after 580 years. */
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake_fd >= 0)
        d->wake = event_new(base, d->wake_fd, EV_READ | EV_ET | EV_PERSIST, on_wake, d);
    d->idle = evtimer_new(base, on_idle, d);
    d->drain_linger = evtimer_new(base, on_drain_linger, d);
    if (control_open(d) || !d->model || !d->wake || !d->idle || !d->drain_linger || event_add(d->wake, NULL)) {
        daemon_close(d);
        return quire_fail(err, QUIRE_NO_MEMORY, "daemon: out of memory");
    }
    *out = d;
    return QUIRE_OK;
}

void daemon_set_engine(struct daemon *d, struct engine *engine)
{
    d->engine = engine;
}

void daemon_set_shadow(struct daemon *d, struct shadow *shadow)
{
    d->shadow = shadow;
}

int daemon_add_connection(struct daemon *d, struct wire_stream *stream, struct quire_error *err)
{
    if (d->engine)
        return connection_open(d, stream, NULL, err);
    wire_stream_close(stream);
    return quire_fail(err, QUIRE_INTERNAL, "daemon: a connection before its engine");
}

void daemon_drain(struct daemon *d)
{
    if (d->draining)
        return;
    d->draining = true;
    if (d->engine)
        engine_drain(d->engine);
    for (struct connection *c = d->connections; c; c = c->next) {
        struct buffer *b = c->state == CONNECTION_READY ? queue_begin(c) : NULL;
        if (b) {
            wire_put_drain(b);
            queue_end(c);
        }
    }
    event_active(d->wake, 0, 0);
}

void daemon_engine_died(struct daemon *d, const char *why)
{
    d->finishing = true;
    for (struct connection *c = d->connections; c; c = c->next)
        connection_fail(c, QUIRE_UNAVAILABLE, why);
}

static bool requests_live(const struct daemon *d)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&d->mutex;
    pthread_mutex_lock(mutex);
    bool live = d->requests.n_live > 0;
    pthread_mutex_unlock(mutex);
    return live;
}

static bool queues_empty(const struct daemon *d)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&d->mutex;
    bool empty = true;
    pthread_mutex_lock(mutex);
    for (const struct connection *c = d->connections; c && empty; c = c->next)
        empty = c->out.n == c->sent && c->pending.n == 0 && c->n_answers == 0;
    pthread_mutex_unlock(mutex);
    return empty;
}

bool daemon_idle(const struct daemon *d)
{
    if (d->finishing)
        return d->n_connections == 0;
    return !d->draining && !requests_live(d) && queues_empty(d);
}

static void check_idle(struct daemon *d)
{
    if (!d->draining || d->idle_told)
        return;
    if (!d->finishing && !requests_live(d)) {
        if (queues_empty(d)) {
            finish(d);
        } else if (!d->drain_linger_begun) {
            d->drain_linger_begun = true;
            set_timer(d->drain_linger, DAEMON_DRAIN_LINGER_MS);
        }
    }
    if (daemon_idle(d)) {
        d->idle_told = true;
        if (d->options.on_idle)
            event_active(d->idle, EV_TIMEOUT, 0);
    }
}

uint32_t daemon_n_connections(const struct daemon *d)
{
    return d->n_connections;
}

void daemon_close(struct daemon *d)
{
    if (!d)
        return;
    d->engine = NULL;
    d->idle_told = true;
    listeners_close(d);
    while (d->connections)
        connection_close(d->connections);
    if (d->wake)
        event_free(d->wake);
    if (d->idle)
        event_free(d->idle);
    if (d->drain_linger)
        event_free(d->drain_linger);
    if (d->wake_fd >= 0)
        close(d->wake_fd);
    request_table_free(&d->requests);
    control_close(d);
    pthread_mutex_destroy(&d->mutex);
    free(d->model);
    free(d);
}
