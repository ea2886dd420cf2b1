#include "server/http/http_internal.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "server/http/tls.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* After a reply that leaves input unread, the connection is read and forgotten for so long:
 * closing it at once would reset it and take the reply from the client's hands. */
#define LINGER_MS 2000
#define LINGER_BYTES (64u << 20)
#define BODY_BYTES_PER_MS 16
#define ACCEPT_PAUSE_MS 100
#define TOO_MANY_BODIES "the server is holding too many large requests"
#define TOO_MANY_CONNECTIONS "the server has reached its limit of connections, and all are busy: try again later"
/* How often those who are held are looked after, besides when a place becomes free. */
#define LOOK_MS 100
/* Limit of data in the kernel beyond the client's window. Without it the kernel would buffer megabytes, and a client
 * that stops reading would be noticed late. */
#define UNSENT_BYTES 131072
/* For the request of a connection that was accepted while the server drains. */
#define LATE_REQUEST_MS 1000

static void process_input(struct http_connection *c);

/* ---- timers --------------------------------------------------------------------------------- */

static void set_timer(struct http_connection *c, uint64_t ms, bool deadline)
{
    struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    c->deadline = deadline;
    event_add(c->timer, &tv);
}

void http_connection_later(struct http_connection *c)
{
    set_timer(c, 0, false);
}

static void set_read_deadline(struct http_connection *c)
{
    const struct http_limits *l = &c->server->limits;
    if (http_parser_is_idle(c->parser))
        set_timer(c, c->late ? LATE_REQUEST_MS : l->idle_timeout_ms, true);
    else
        set_timer(c, l->head_timeout_ms, true);
}

static void set_resume(struct http_server *s, uint32_t ms)
{
    struct timeval tv = {.tv_usec = (suseconds_t)ms * 1000};
    event_add(s->resume, &tv);
}

/* ---- connections ---------------------------------------------------------------------------- */

void http_connection_enter(struct http_connection *c, enum phase phase)
{
    c->server->n_held += (phase == HELD) - (c->phase == HELD);
    c->phase = phase;
    http_slots_note(c);
}

/* A connection that comes during draining is rejected at once and has nothing in progress, so it does not delay the
 * end. */
static void check_idle(struct http_server *s)
{
    if (s->draining && s->on_idle && s->n_connections == s->n_late)
        event_active(s->idle, EV_TIMEOUT, 0);
}

char *http_connection_take_body(struct http_connection *c, size_t *n_bytes)
{
    return http_parser_take_body(c->parser, n_bytes);
}

void http_connection_reset_parser(struct http_connection *c)
{
    http_parser_reset(c->parser);
    http_slots_count_body(c, 0);
}

static void free_connection(struct http_connection *c)
{
    struct http_server *s = c->server;
    http_connection_reset_parser(c);
    http_slots_leave(c);
    TAILQ_REMOVE(&s->connections, c, link);
    if (c->unwritten)
        TAILQ_REMOVE(&s->unwritten, c, unwritten_link);
    s->n_connections--;
    s->n_late -= c->late;
    if (c->x->extra)
        evbuffer_free(c->x->extra);
    event_free(c->timer);
    bufferevent_free(c->bev);
    free(c->parser);
    free(c->x);
    free(c);
    if (s->n_held > 0)
        set_resume(s, 0);
    check_idle(s);
}

static void notify_gone(struct http_connection *c)
{
    struct http_exchange x = *c->x;
    c->x->live = false;
    if (x.live && x.on_gone)
        x.on_gone(x.context);
}

/* The client has disconnected; notifies the exchange's handler. */
static void drop_connection(struct http_connection *c)
{
    notify_gone(c);
    free_connection(c);
}

static void begin_closing(struct http_connection *c)
{
    if (c->is_tls)
        tls_say_goodbye(bufferevent_openssl_get_ssl(c->bev));
    if (!c->unread || c->eof) {
        free_connection(c);
        return;
    }
    http_connection_enter(c, LINGERING);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    set_timer(c, LINGER_MS, true);
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool sane_id(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:");
    return n > 0 && n <= 64 && id[n] == '\0';
}

/* 32 hexadecimal digits. The kernel's random numbers come a kilobyte at a time: a system call for each request was 1.5 %
 * of the loop's time. */
static void make_id(struct http_server *s, char *id)
{
    const size_t n = 16;
    if (s->n_random < n) {
        quire_random(s->random, sizeof s->random);
        s->n_random = sizeof s->random;
    }
    s->n_random -= n;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = s->random[s->n_random + i];
        id[2 * i] = "0123456789abcdef"[byte >> 4];
        id[2 * i + 1] = "0123456789abcdef"[byte & 15];
    }
    id[2 * n] = '\0';
}

/* Sets up the exchange of the request that the parser holds, or of an invalid request. */
static void begin_exchange(struct http_connection *c)
{
    struct http_exchange *x = c->x;
    struct evbuffer *extra = x->extra;
    *x = (struct http_exchange){.connection = c, .extra = extra, .live = true};
    const char *id = http_parser_header(c->parser, "x-request-id");
    if (id && sane_id(id)) {
        memcpy(x->request_id, id, strlen(id) + 1);
    } else {
        make_id(c->server, x->request_id);
    }
    if (extra) /* a request whose body turned out to be invalid */
        evbuffer_drain(extra, evbuffer_get_length(extra));
    x->is_head = c->parser->method && strcmp(c->parser->method, "HEAD") == 0;
}

/* The reply to what is no request; it is the connection's last. */
static void refuse(struct http_connection *c, int status, const char *reason)
{
    event_del(c->timer);
    notify_gone(c); /* the rest of its body does not come */
    begin_exchange(c);
    c->unread = true;
    http_connection_enter(c, WORKING);
    c->inside = true;
    c->server->handler.on_bad(c->server->context, c->x, status, reason);
    c->inside = false;
    http_connection_reset_parser(c);
}

/* Refuses what it has begun to say, if anything, and frees it at once. */
static void send_away(struct http_connection *c, int status, const char *reason)
{
    bool has_begun = c->phase == HELD || (c->phase == READING && (c->x->live || !http_parser_is_idle(c->parser)));
    if (!has_begun) {
        drop_connection(c);
        return;
    }
    refuse(c, status, reason);
    /* Writes directly to the socket. The socket takes all of it, because nothing else is pending. */
    if (!c->is_tls) {
        struct evbuffer *out = bufferevent_get_output(c->bev);
        evbuffer_unfreeze(out, 1);
        evbuffer_write(out, bufferevent_getfd(c->bev));
    }
    free_connection(c);
}

/* Finds a place for it; others may be freed for that. */
static enum http_place find_place(struct http_connection *c)
{
    for (;;) {
        struct http_connection *goes;
        enum http_place got = http_slots_place(c, &goes);
        if (!goes)
            return got;
        send_away(goes, 408, "the connection was closed because others needed it and its request had not arrived");
    }
}

/* Whether the request may go on; else it is held. */
static bool take_place(struct http_connection *c)
{
    struct http_server *s = c->server;
    if (c->placed || s->handler.is_urgent(s->context, c->x) || find_place(c) == HTTP_PLACED)
        return true;
    http_connection_enter(c, HELD);
    set_timer(c, s->limits.head_timeout_ms, true);
    if (!event_pending(s->resume, EV_TIMEOUT, NULL))
        set_resume(s, LOOK_MS);
    return false;
}

static uint64_t max_streamed(const struct http_server *s)
{
    const struct http_limits *l = &s->limits;
    return l->max_streamed_bytes > l->max_body_bytes ? l->max_streamed_bytes : l->max_body_bytes;
}

static void on_head(struct http_connection *c)
{
    struct http_server *s = c->server;
    begin_exchange(c);
    if (!take_place(c))
        return;
    /* Until the body has been read, a reply leaves it unread. */
    c->unread = c->parser->has_body;
    c->inside = true;
    s->handler.on_head(s->context, c->x);
    c->inside = false;
    if (!c->x->live)
        return;
    c->unread = c->x->on_part && c->parser->has_body;
    if (!c->parser->has_body)
        return;
    if (!c->x->on_part && c->parser->content_length > s->limits.max_body_bytes) {
        refuse(c, 413, "the request's body is larger than this server takes");
        return;
    }
    if (c->parser->expect_continue && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0)
        evbuffer_add_printf(http_connection_out(c), "HTTP/1.1 100 Continue\r\n\r\n");
    const uint64_t most = c->x->on_part ? max_streamed(s) : s->limits.max_body_bytes;
    uint64_t n_bytes = c->parser->chunked ? most : c->parser->content_length;
    set_timer(c, s->limits.body_timeout_ms + n_bytes / BODY_BYTES_PER_MS, true);
}

/* Passes on what has arrived of a body that is not kept. Returns false if the exchange has ended. */
static bool pass_part(struct http_connection *c)
{
    struct http_exchange *x = c->x;
    const size_t n = c->parser->n_body;
    if (!x->live || !x->on_part || n == 0)
        return true;
    c->parser->n_passed += n;
    if (c->parser->n_passed > max_streamed(c->server)) {
        refuse(c, 413, "the request's body is larger than this server takes");
        return false;
    }
    c->parser->n_body = 0;
    c->inside = true;
    x->on_part(x->part_context, c->parser->body, n);
    c->inside = false;
    return x->live;
}

static void on_request(struct http_connection *c)
{
    struct http_server *s = c->server;
    c->unread = false;
    event_del(c->timer);
    http_connection_enter(c, WORKING);
    c->inside = true;
    s->handler.on_request(s->context, c->x);
    c->inside = false;
}

static bool may_keep_body(struct http_connection *c)
{
    struct http_connection *goes;
    bool may;
    while (!(may = http_slots_for_body(c, &goes)) && goes)
        refuse(goes, 503, TOO_MANY_BODIES);
    return may;
}

/* Feeds what has arrived. True: the parser wants to be fed again. */
static bool feed(struct http_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool was_idle = http_parser_is_idle(c->parser);
    size_t n = evbuffer_get_contiguous_space(in), used = 0;
    const uint8_t *data = n > 0 ? evbuffer_pullup(in, (ev_ssize_t)n) : NULL;
    enum http_parsed got = http_parser_feed(c->parser, data, data ? n : 0, &used);
    evbuffer_drain(in, used);
    if (c->parser->body_capacity > c->n_body) {
        http_slots_count_body(c, c->parser->body_capacity);
        /* Many clients may send large bodies at once. The connection that exceeds the limit is rejected with a
         * request to retry. */
        if (got == HTTP_MORE && !may_keep_body(c)) {
            refuse(c, 503, TOO_MANY_BODIES);
            return false;
        }
    }
    if (!pass_part(c))
        return false;
    switch (got) {
    case HTTP_MORE:
        if (was_idle && !http_parser_is_idle(c->parser)) {
            http_connection_enter(c, READING); /* it waits for something else from now on */
            set_read_deadline(c);
        }
        return used > 0 && evbuffer_get_length(in) > 0 && !c->x->paused;
    case HTTP_HEAD: on_head(c); return c->phase == READING && c->x->live;
    case HTTP_DONE: on_request(c); return false;
    case HTTP_BAD: refuse(c, c->parser->bad_status, c->parser->bad_reason); return false;
    }
    return false;
}

/* Input that is kept: as much as one request may have. Reading pauses there. */
static size_t max_input(const struct http_server *s)
{
    return s->limits.max_head_bytes + s->limits.max_body_bytes;
}

/* While a request is worked on, reading must not pause: the client's going away would not be
 * noticed. So one that has sent so much ahead is cut off. The connection may be freed. */
static void check_flood(struct http_connection *c)
{
    if (evbuffer_get_length(bufferevent_get_input(c->bev)) >= max_input(c->server))
        drop_connection(c);
}

/* Reads requests until one is in progress. The connection may be freed. */
static void process_input(struct http_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev), *out = bufferevent_get_output(c->bev);
    while (c->phase == READING && !(c->x->live && c->x->paused)) {
        if (evbuffer_get_length(out) > c->server->limits.max_pending_bytes) {
            c->stalled = true;
            return;
        }
        bool again = feed(c);
        if (!again)
            break;
    }
    if ((c->phase == WORKING || c->phase == HELD) && c->eof) {
        drop_connection(c);
    } else if (c->phase == WORKING || c->phase == HELD) {
        check_flood(c);
    } else if (c->phase == READING && !c->x->live) {
        if (evbuffer_get_length(in) > 0 && http_parser_is_idle(c->parser)) {
            http_connection_later(c);
        } else if (c->eof || (c->server->draining && http_parser_is_idle(c->parser))) {
            /* Nothing more comes; replies to what came are still to be taken. */
            http_connection_enter(c, FLUSHING);
            http_connection_later(c);
        } else if (http_parser_is_idle(c->parser)) {
            set_read_deadline(c);
        }
    } else if (c->phase == READING && c->eof && !c->x->paused) {
        drop_connection(c); /* in the middle of a request */
    } else if (c->phase == FLUSHING && evbuffer_get_length(out) == 0) {
        begin_closing(c);
    }
}

/* One that was held has a place. It may be freed. */
static void go_on(struct http_connection *c)
{
    event_del(c->timer);
    http_connection_enter(c, READING);
    on_head(c);
    if (c->phase == READING)
        process_input(c);
}

/* ---- events --------------------------------------------------------------------------------- */

static void on_readable(struct bufferevent *bev, void *context)
{
    struct http_connection *c = context;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t n = evbuffer_get_length(in);
    switch (c->phase) {
    case READING:
        if (!c->stalled)
            process_input(c);
        break;
    case HELD:
    case WORKING: check_flood(c); break;
    case FLUSHING:
    case LINGERING:
        c->n_lingered += n;
        evbuffer_drain(in, n);
        if (c->n_lingered > LINGER_BYTES)
            free_connection(c);
        break;
    }
}

/* Everything that was added is written. The connection may be freed. */
static void all_written(struct http_connection *c)
{
    if (c->phase == FLUSHING) {
        begin_closing(c);
    } else if (c->stalled) {
        c->stalled = false;
        process_input(c);
    }
}

static void on_written(struct bufferevent *bev, void *context)
{
    struct http_connection *c = context;
    /* With TLS this is called a turn of the loop later, and there may be more to write by then. */
    if (evbuffer_get_length(bufferevent_get_output(bev)) > 0)
        return;
    if (!c->is_tls)
        bufferevent_disable(bev, EV_WRITE);
    all_written(c);
}

/* A socket nearly always takes a reply at once, so it is written directly. Only the rest goes to the bufferevent,
 * which registers with the kernel, writes and deregisters. This saves two system calls per token of a stream. The
 * bufferevent also handles errors. */
static void write_out(struct http_connection *c)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (bufferevent_get_enabled(c->bev) & EV_WRITE)
        return;
    evbuffer_unfreeze(out, 1);
    evbuffer_write(out, bufferevent_getfd(c->bev));
    evbuffer_freeze(out, 1);
    if (evbuffer_get_length(out) > 0)
        bufferevent_enable(c->bev, EV_WRITE);
    else
        all_written(c);
}

static void on_flush(evutil_socket_t fd, short what, void *context)
{
    struct http_server *s = context;
    struct http_connection *c;
    (void)fd;
    (void)what;
    while ((c = TAILQ_FIRST(&s->unwritten))) {
        TAILQ_REMOVE(&s->unwritten, c, unwritten_link);
        c->unwritten = false;
        write_out(c);
    }
}

struct evbuffer *http_connection_out(struct http_connection *c)
{
    struct http_server *s = c->server;
    if (!c->unwritten && !c->is_tls) {
        if (TAILQ_EMPTY(&s->unwritten))
            event_active(s->flush, EV_TIMEOUT, 0);
        TAILQ_INSERT_TAIL(&s->unwritten, c, unwritten_link);
        c->unwritten = true;
    }
    return bufferevent_get_output(c->bev);
}

static void on_event(struct bufferevent *bev, short what, void *context)
{
    struct http_connection *c = context;
    if (what & BEV_EVENT_CONNECTED) { /* the handshake is done */
        if (c->phase == READING && c->deadline)
            set_read_deadline(c);
        return;
    }
    /* A TLS client that says that it sends nothing more is taken at its word for the other half too: the bufferevent
     * has stopped writing. */
    if (!(what & BEV_EVENT_EOF) || c->is_tls || c->phase == WORKING || c->phase == HELD || c->phase == LINGERING) {
        drop_connection(c);
        return;
    }
    c->eof = true;
    if (c->phase == READING && !c->stalled)
        process_input(c);
    else if (c->phase == FLUSHING && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        free_connection(c);
}

/* It has waited long enough. */
static void refuse_held(struct http_connection *c)
{
    switch (find_place(c)) {
    case HTTP_PLACED: go_on(c); break;
    case HTTP_NO_SHARE: refuse(c, 429, "this address has reached its limit of connections, and all are busy"); break;
    case HTTP_NO_PLACE: refuse(c, 503, TOO_MANY_CONNECTIONS); break;
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct http_connection *c = context;
    (void)fd;
    (void)what;
    bool deadline = c->deadline;
    c->deadline = false;
    if (c->doomed) {
        drop_connection(c);
    } else if (c->phase == LINGERING) {
        free_connection(c);
    } else if (c->phase == HELD) {
        refuse_held(c);
    } else if (c->phase == FLUSHING) {
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
            begin_closing(c);
    } else if (c->phase == READING && !deadline) {
        process_input(c);
    } else if (c->phase == READING && http_parser_is_idle(c->parser)) {
        free_connection(c);
    } else if (c->phase == READING) {
        refuse(c, 408, "the request did not arrive in time");
    }
}

/* ---- the server ----------------------------------------------------------------------------- */

static struct bufferevent *new_bufferevent(struct http_server *s, evutil_socket_t fd, bool is_tls)
{
    if (!is_tls)
        return bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *session = tls_accepting(s->tls);
    struct bufferevent *bev = session ? bufferevent_openssl_socket_new(s->base, fd, session, BUFFEREVENT_SSL_ACCEPTING,
                                                                       BEV_OPT_CLOSE_ON_FREE)
                                      : NULL;
    if (session && !bev)
        SSL_free(session);
    return bev;
}

/* fd is the connection's, also on failure (NULL). from NULL: it was adopted. */
static struct http_connection *new_connection(struct http_server *s, evutil_socket_t fd, const struct sockaddr *from)
{
    struct http_connection *c = calloc(1, sizeof *c);
    if (!c) {
        evutil_closesocket(fd);
        return NULL;
    }
    c->server = s;
    c->late = s->draining;
    c->opened_ms = quire_now_ms();
    c->is_tls = from && s->tls;
    c->x = calloc(1, sizeof *c->x);
    if (c->x)
        c->x->connection = c;
    c->parser = malloc(sizeof *c->parser);
    if (c->parser) {
        http_parser_init(c->parser, s->limits.max_head_bytes, s->limits.max_body_bytes);
        c->parser->max_length = max_streamed(s);
    }
    c->bev = new_bufferevent(s, fd, c->is_tls);
    c->timer = event_new(s->base, -1, 0, on_timer, c);
    if (c->x && c->parser && c->bev && c->timer && http_slots_enter(c, from)) {
        find_place(c);
        return c;
    }
    if (c->bev)
        bufferevent_free(c->bev);
    else
        evutil_closesocket(fd);
    if (c->timer)
        event_free(c->timer);
    free(c->parser);
    free(c->x);
    free(c);
    return NULL;
}

/* Returns false if memory is out. */
static bool add_connection(struct http_server *s, evutil_socket_t fd, const struct sockaddr *from)
{
    struct http_connection *c = new_connection(s, fd, from);
    if (!c)
        return false;
    int on = 1, unsent = UNSENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    uint32_t ms = s->limits.write_timeout_ms;
    struct timeval write_timeout = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    bufferevent_set_timeouts(c->bev, NULL, &write_timeout);
    bufferevent_setcb(c->bev, on_readable, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, max_input(s));
    TAILQ_INSERT_TAIL(&s->connections, c, link);
    s->n_connections++;
    s->n_late += c->late;
    bufferevent_disable(c->bev, EV_WRITE);
    bufferevent_enable(c->bev, c->is_tls ? EV_READ | EV_WRITE : EV_READ);
    if (c->is_tls)
        set_timer(c, s->limits.head_timeout_ms, true); /* for the handshake */
    else
        set_read_deadline(c);
    return true;
}

int http_server_adopt(struct http_server *s, int fd)
{
    return add_connection(s, fd, NULL) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int n_from,
                      void *context)
{
    struct http_server *s = context;
    (void)n_from;
    add_connection(s, fd, from);
    if (http_slots_is_crowded(s)) {
        evconnlistener_disable(listener);
        set_resume(s, 0);
    }
}

static void on_accept_error(struct evconnlistener *listener, void *context)
{
    struct http_server *s = context;
    quire_log(QUIRE_LOG_WARN, "server", "a connection could not be accepted: %s", strerror(errno));
    evconnlistener_disable(listener);
    set_resume(s, ACCEPT_PAUSE_MS);
}

static void on_resume(evutil_socket_t fd, short what, void *context)
{
    struct http_server *s = context;
    (void)fd;
    (void)what;
    struct http_connection *next, *first;
    for (struct http_connection *c = http_slots_first_unplaced(s); c; c = next) {
        next = TAILQ_NEXT(c, slot_link);
        if (c->phase == HELD && find_place(c) == HTTP_PLACED)
            go_on(c);
    }
    while ((first = http_slots_too_many(s)))
        send_away(first, 503, TOO_MANY_CONNECTIONS);
    if (s->n_held > 0)
        set_resume(s, LOOK_MS);
    if (s->listener)
        evconnlistener_enable(s->listener);
}

static void on_idle_event(evutil_socket_t fd, short what, void *context)
{
    struct http_server *s = context;
    (void)fd;
    (void)what;
    void (*on_idle)(void *) = s->on_idle;
    s->on_idle = NULL;
    if (on_idle)
        on_idle(s->idle_context);
}

static int listen_on(struct http_server *s, const char *host, uint16_t port, int backlog, struct quire_error *err)
{
    char service[8];
    struct addrinfo hints = {
        .ai_family = host ? AF_UNSPEC : AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    snprintf(service, sizeof service, "%u", port);
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed)
        return quire_fail(err, QUIRE_IO, "cannot listen on %s: %s", host ? host : "", gai_strerror(failed));
    for (const struct addrinfo *a = found; a && !s->listener; a = a->ai_next)
        s->listener = evconnlistener_new_bind(s->base, on_accept, s,
                                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC,
                                              backlog, a->ai_addr, (int)a->ai_addrlen);
    int why = errno;
    freeaddrinfo(found);
    if (!s->listener)
        return quire_fail(err, QUIRE_IO, "cannot listen on %s port %u: %s", host ? host : "every address", port,
                          strerror(why));
    evconnlistener_set_error_cb(s->listener, on_accept_error);

    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&address, &n) == 0) {
        if (address.ss_family == AF_INET6)
            s->port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
        else
            s->port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        const struct http_address bound = http_address_of((struct sockaddr *)&address);
        s->is_local = http_address_is_loopback(&bound);
    }
    return QUIRE_OK;
}

/* Descriptors are for more than connections: the engine, the poll, what the libraries open. */
static void bound_connections(struct http_server *s)
{
    struct rlimit files;
    const rlim_t others = 32 + HTTP_SLOTS_UNPLACED;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY && files.rlim_cur > 2 * others &&
        s->limits.max_connections > files.rlim_cur - others) {
        s->limits.max_connections = (uint32_t)(files.rlim_cur - others);
        quire_log(QUIRE_LOG_WARN, "server",
                  "at most %u connections are accepted, because the process may not open more files (ulimit -n)",
                  s->limits.max_connections);
    }
    if (s->limits.max_connections_per_address == 0)
        s->limits.max_connections_per_address = (s->limits.max_connections + 1) / 2;
}

int http_server_open_private(struct event_base *base, const struct http_limits *limits,
                             const struct http_handler *handler, void *context, struct http_server **out,
                             struct quire_error *err)
{
    *out = NULL;
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    s->base = base;
    s->limits = *limits;
    s->handler = *handler;
    s->context = context;
    s->is_local = true;
    TAILQ_INIT(&s->connections);
    TAILQ_INIT(&s->unwritten);
    s->slots = http_slots_new();
    s->resume = event_new(base, -1, 0, on_resume, s);
    s->idle = event_new(base, -1, 0, on_idle_event, s);
    s->flush = event_new(base, -1, 0, on_flush, s);
    if (!s->slots || !s->resume || !s->idle || !s->flush) {
        http_server_close(s);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    *out = s;
    return QUIRE_OK;
}

int http_server_open(struct event_base *base, const char *host, uint16_t port, int backlog,
                     const struct http_limits *limits, const struct http_handler *handler, void *context,
                     struct http_server **out, struct quire_error *err)
{
    int status = http_server_open_private(base, limits, handler, context, out, err);
    if (status != QUIRE_OK)
        return status;
    (*out)->is_local = false;
    bound_connections(*out);
    status = listen_on(*out, host, port, backlog, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    http_server_close(*out);
    *out = NULL;
    return status;
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    s->on_idle = NULL;
    if (s->listener)
        evconnlistener_free(s->listener);
    s->listener = NULL;
    struct http_connection *c;
    while ((c = TAILQ_FIRST(&s->connections)))
        drop_connection(c);
    if (s->resume)
        event_free(s->resume);
    if (s->idle)
        event_free(s->idle);
    if (s->flush)
        event_free(s->flush);
    http_slots_free(s->slots);
    free(s);
}

void http_server_use_tls(struct http_server *s, const struct tls *tls)
{
    s->tls = tls;
}

bool http_server_is_local(const struct http_server *s)
{
    return s->is_local;
}

bool http_server_has_tls(const struct http_server *s)
{
    return s->tls != NULL;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

uint32_t http_server_n_connections(const struct http_server *s)
{
    return http_slots_n_placed(s);
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    struct http_connection *c;
    /* Idle connections are closed at the next turn of the loop, when no caller holds them. A connection without any
     * reply may have a request on its way. It is treated like a late connection, because clients take a closed
     * connection for an error. */
    TAILQ_FOREACH(c, &s->connections, link)
    {
        if (c->phase != READING || !http_parser_is_idle(c->parser))
            continue;
        if (c->served) {
            http_connection_later(c);
        } else if (!c->late) {
            c->late = true;
            s->n_late++;
            set_read_deadline(c);
        }
    }
    check_idle(s);
}

void http_server_on_idle(struct http_server *s, void (*on_idle)(void *context), void *context)
{
    s->on_idle = on_idle;
    s->idle_context = context;
    check_idle(s);
}
