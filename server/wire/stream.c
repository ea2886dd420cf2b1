#include "server/wire/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* In-memory stream: the most bytes that one end may have sent and the other not read. A longer prompt goes in
 * pieces. */
#define MOST_BYTES ((size_t)1 << 20)
#define KEEP_BYTES ((size_t)1 << 16)

struct wire_stream {
    struct event *readable, *writable;
    void (*on_readable)(void *context);
    void (*on_writable)(void *context);
    void *context;
    int fd; /* -1: in-memory stream, which uses the members below */
    struct wire_stream *peer; /* NULL: closed */
    struct buffer in;         /* [taken, n): bytes that the peer sent */
    size_t taken;
    bool ended; /* no more bytes will come */
    bool waits; /* waits for space at the peer */
};

static void on_read_event(evutil_socket_t fd, short what, void *context)
{
    struct wire_stream *s = context;
    (void)fd;
    (void)what;
    s->on_readable(s->context);
}

static void on_write_event(evutil_socket_t fd, short what, void *context)
{
    struct wire_stream *s = context;
    (void)fd;
    (void)what;
    s->on_writable(s->context);
}

/* fd -1: the code activates its events itself. */
static struct wire_stream *new_stream(struct event_base *base, int fd)
{
    struct wire_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->fd = fd;
    s->readable = event_new(base, fd, fd < 0 ? 0 : EV_READ | EV_PERSIST, on_read_event, s);
    s->writable = event_new(base, fd, fd < 0 ? 0 : EV_WRITE, on_write_event, s);
    if (s->readable && s->writable)
        return s;
    s->fd = -1;
    wire_stream_close(s);
    return NULL;
}

struct wire_stream *wire_stream_of_socket(struct event_base *base, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    bool good = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) >= 0;
    struct wire_stream *s = good ? new_stream(base, fd) : NULL;
    if (!s)
        close(fd);
    return s;
}

int wire_stream_pair(struct event_base *base, struct wire_stream *ends[2], struct quire_error *err)
{
    ends[0] = new_stream(base, -1);
    ends[1] = new_stream(base, -1);
    if (ends[0] && ends[1]) {
        ends[0]->peer = ends[1];
        ends[1]->peer = ends[0];
        return QUIRE_OK;
    }
    wire_stream_close(ends[0]);
    wire_stream_close(ends[1]);
    return quire_fail(err, QUIRE_NO_MEMORY, "stream: out of memory");
}

static void call(struct event *event)
{
    event_active(event, EV_TIMEOUT, 0);
}

void wire_stream_close(struct wire_stream *s)
{
    if (!s)
        return;
    if (s->peer) {
        s->peer->peer = NULL;
        s->peer->ended = true;
        if (s->peer->on_readable)
            call(s->peer->readable);
    }
    if (s->readable)
        event_free(s->readable);
    if (s->writable)
        event_free(s->writable);
    if (s->fd >= 0)
        close(s->fd);
    buffer_free(&s->in);
    free(s);
}

int wire_stream_listen(struct wire_stream *s, void (*readable)(void *context), void (*writable)(void *context),
                       void *context)
{
    s->on_readable = readable;
    s->on_writable = writable;
    s->context = context;
    if (s->fd >= 0)
        return event_add(s->readable, NULL) ? QUIRE_NO_MEMORY : QUIRE_OK;
    if (s->in.n > 0 || s->ended)
        call(s->readable);
    return QUIRE_OK;
}

static size_t held(const struct wire_stream *s)
{
    return s->in.n - s->taken;
}

void wire_stream_await_space(struct wire_stream *s)
{
    if (s->fd >= 0)
        event_add(s->writable, NULL);
    else if (s->peer && held(s->peer) >= MOST_BYTES)
        s->waits = true;
    else
        call(s->writable);
}

/* ---- memory ---- */

/* Returns false if memory ran out; the buffered bytes are then lost. */
static bool give(struct wire_stream *to, const void *bytes, size_t n)
{
    struct buffer *b = &to->in;
    if (to->taken > b->n / 2) {
        memmove(b->data, b->data + to->taken, b->n - to->taken);
        b->n -= to->taken;
        to->taken = 0;
    }
    if (buffer_append(b, bytes, n) == QUIRE_OK)
        return true;
    buffer_free(b);
    to->taken = 0;
    to->ended = true;
    return false;
}

static ssize_t send_to_peer(struct wire_stream *s, const struct iovec *parts, int n_parts)
{
    struct wire_stream *to = s->peer;
    size_t n_sent = 0;
    if (!to) {
        errno = EPIPE;
        return -1;
    }
    for (int i = 0; i < n_parts; i++) {
        size_t room = MOST_BYTES - held(to), n = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (!give(to, parts[i].iov_base, n)) {
            errno = ENOMEM;
            return -1;
        }
        n_sent += n;
    }
    if (n_sent == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (to->on_readable)
        call(to->readable);
    return (ssize_t)n_sent;
}

/* After a read. A reader that leaves bytes lets other events run first. */
static void after_read(struct wire_stream *s)
{
    static const struct timeval next_turn = {0};
    if (held(s) > 0 || s->ended)
        event_add(s->readable, &next_turn);
    if (s->peer && s->peer->waits) {
        s->peer->waits = false;
        call(s->peer->writable);
    }
}

static ssize_t take(struct wire_stream *s, void *bytes, size_t n)
{
    size_t n_held = held(s);
    if (n_held == 0 && !s->ended)
        errno = EAGAIN;
    if (n_held == 0)
        return s->ended ? 0 : -1;
    n = n < n_held ? n : n_held;
    memcpy(bytes, s->in.data + s->taken, n);
    s->taken += n;
    if (held(s) == 0) {
        s->in.n = s->taken = 0;
        if (s->in.capacity > KEEP_BYTES)
            buffer_free(&s->in);
    }
    after_read(s);
    return (ssize_t)n;
}

/* ---- either ---- */

ssize_t wire_stream_send_parts(struct wire_stream *s, struct iovec *parts, int n_parts)
{
    if (s->fd < 0)
        return send_to_peer(s, parts, n_parts);
    return sendmsg(s->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = (size_t)n_parts}, MSG_NOSIGNAL);
}

ssize_t wire_stream_send(struct wire_stream *s, const void *bytes, size_t n)
{
    struct iovec part = {(void *)(uintptr_t)bytes, n};
    return s->fd < 0 ? send_to_peer(s, &part, 1) : send(s->fd, bytes, n, MSG_NOSIGNAL);
}

ssize_t wire_stream_receive(struct wire_stream *s, void *bytes, size_t n)
{
    return s->fd < 0 ? take(s, bytes, n) : recv(s->fd, bytes, n, 0);
}

size_t wire_stream_exchange(struct wire_stream *s, struct buffer *empty, size_t most)
{
    if (s->fd >= 0 || s->taken > 0 || s->in.n == 0 || s->in.n > most)
        return 0;
    struct buffer full = s->in;
    s->in = *empty;
    *empty = full;
    if (s->in.capacity > KEEP_BYTES)
        buffer_free(&s->in);
    after_read(s);
    return full.n;
}

void wire_stream_end(struct wire_stream *s)
{
    if (s->fd >= 0) {
        shutdown(s->fd, SHUT_WR);
    } else if (s->peer) {
        s->peer->ended = true;
        if (s->peer->on_readable)
            call(s->peer->readable);
    }
}
