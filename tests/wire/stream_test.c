/* A stream behaves the same over a socket and in memory: bytes arrive in order, and in pieces if space is short; the
 * end comes after them; and only the loop calls callbacks. */
#include "server/wire/stream.h"

#include "base/hash.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define N_BYTES ((size_t)5 << 20) /* more than any stream holds */

struct end {
    struct wire_stream *stream;
    uint8_t *bytes; /* received */
    size_t n, n_sent, piece; /* piece: bytes per read */
    const uint8_t *send;
    uint32_t n_readable, n_writable;
    bool ended, in_call, close_at_once;
    struct buffer *exchange; /* NULL: reads bytes */
};

struct pair {
    struct event_base *base;
    struct end ends[2];
};

static void on_readable(void *context)
{
    struct end *e = context;
    assert_false(e->in_call);
    e->n_readable++;
    if (e->close_at_once) {
        wire_stream_close(e->stream);
        e->stream = NULL;
        return;
    }
    if (e->exchange && wire_stream_exchange(e->stream, e->exchange, N_BYTES) > 0)
        return;
    ssize_t n = wire_stream_receive(e->stream, e->bytes + e->n, e->piece);
    bool reset = n < 0 && errno == ECONNRESET; /* a socket with unread bytes was closed */
    assert_true(n >= 0 || errno == EAGAIN || reset);
    e->ended |= n == 0 || reset;
    e->n += n > 0 ? (size_t)n : 0;
}

static void on_writable(void *context)
{
    struct end *e = context;
    assert_false(e->in_call);
    e->n_writable++;
    while (e->n_sent < N_BYTES && e->send) {
        ssize_t n = wire_stream_send(e->stream, e->send + e->n_sent, N_BYTES - e->n_sent);
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            wire_stream_await_space(e->stream);
            return;
        }
        e->n_sent += (size_t)n;
    }
    if (e->send)
        wire_stream_end(e->stream);
}

static void open_pair(struct pair *p, bool in_memory)
{
    struct quire_error err;
    int fds[2];
    struct wire_stream *streams[2];
    memset(p, 0, sizeof *p);
    p->base = event_base_new();
    if (in_memory) {
        assert_int_equal(wire_stream_pair(p->base, streams, &err), QUIRE_OK);
    } else {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        streams[0] = wire_stream_of_socket(p->base, fds[0]);
        streams[1] = wire_stream_of_socket(p->base, fds[1]);
    }
    for (int i = 0; i < 2; i++) {
        p->ends[i] = (struct end){.stream = streams[i], .bytes = malloc(N_BYTES + 65536), .piece = 65536};
        assert_non_null(p->ends[i].bytes);
        assert_int_equal(wire_stream_listen(streams[i], on_readable, on_writable, &p->ends[i]), QUIRE_OK);
    }
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        wire_stream_close(p->ends[i].stream);
        free(p->ends[i].bytes);
    }
    event_base_free(p->base);
}

static void turns(struct pair *p, int n)
{
    for (int i = 0; i < n; i++)
        event_base_loop(p->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* Both directions at once, read in pieces of an odd size. */
static void carry_much(bool in_memory)
{
    struct pair p;
    uint8_t *bytes = malloc(N_BYTES);
    assert_non_null(bytes);
    quire_random(bytes, N_BYTES);
    open_pair(&p, in_memory);
    for (int i = 0; i < 2; i++) {
        p.ends[i].send = bytes;
        p.ends[i].piece = 4099;
        wire_stream_await_space(p.ends[i].stream);
        assert_int_equal(p.ends[i].n_writable, 0); /* the loop calls it, not wire_stream_send() */
    }
    for (int i = 0; i < 100000 && !(p.ends[0].ended && p.ends[1].ended); i++)
        turns(&p, 1);
    for (int i = 0; i < 2; i++) {
        assert_true(p.ends[i].ended);
        assert_int_equal(p.ends[i].n, N_BYTES);
        assert_memory_equal(p.ends[i].bytes, bytes, N_BYTES);
        assert_in_range(p.ends[i].n_writable, 2, 10000); /* it had to wait for space */
    }
    close_pair(&p);
    free(bytes);
}

/* Within one turn of the loop from the call to the other end, in parts. */
static void carry_little(bool in_memory)
{
    struct pair p;
    open_pair(&p, in_memory);
    struct iovec parts[] = {{"to", 2}, {"", 0}, {"ken", 3}};
    p.ends[0].in_call = p.ends[1].in_call = true;
    assert_int_equal(wire_stream_send_parts(p.ends[0].stream, parts, 3), 5);
    p.ends[0].in_call = p.ends[1].in_call = false;
    turns(&p, 1);
    assert_int_equal(p.ends[1].n, 5);
    assert_memory_equal(p.ends[1].bytes, "token", 5);
    turns(&p, 3);
    assert_int_equal(p.ends[1].n_readable, 1);
    assert_int_equal(p.ends[0].n_readable, 0);
    assert_int_equal(wire_stream_receive(p.ends[1].stream, p.ends[1].bytes, 1), -1);
    assert_int_equal(errno, EAGAIN);
    close_pair(&p);
}

/* Bytes sent before the end are still readable; a sender to a closed end gets an error; and a callback may close its
 * stream. */
static void close_ends(bool in_memory)
{
    struct pair p;
    open_pair(&p, in_memory);
    assert_int_equal(wire_stream_send(p.ends[0].stream, "last", 4), 4);
    wire_stream_close(p.ends[0].stream);
    p.ends[0].stream = NULL;
    turns(&p, 3);
    assert_int_equal(p.ends[1].n, 4);
    assert_true(p.ends[1].ended);
    assert_int_equal(wire_stream_send(p.ends[1].stream, "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    close_pair(&p);

    open_pair(&p, in_memory);
    p.ends[1].close_at_once = true;
    assert_int_equal(wire_stream_send(p.ends[0].stream, "x", 1), 1);
    turns(&p, 3);
    assert_null(p.ends[1].stream);
    close_pair(&p);
}

/* One direction ends, the other continues. */
static void end_half(bool in_memory)
{
    struct pair p;
    open_pair(&p, in_memory);
    wire_stream_end(p.ends[0].stream);
    turns(&p, 2);
    assert_true(p.ends[1].ended);
    assert_int_equal(wire_stream_send(p.ends[1].stream, "more", 4), 4);
    turns(&p, 2);
    assert_int_equal(p.ends[0].n, 4);
    assert_false(p.ends[0].ended);
    close_pair(&p);
}

static void test_sockets(void **state)
{
    (void)state;
    carry_little(false);
    carry_much(false);
    close_ends(false);
    end_half(false);
}

static void test_memory(void **state)
{
    (void)state;
    carry_little(true);
    carry_much(true);
    close_ends(true);
    end_half(true);
}

/* The bytes move with their buffer, and the stream goes on with the other one. */
static void test_exchange(void **state)
{
    struct pair p;
    struct buffer b = {0};
    (void)state;
    open_pair(&p, true);
    struct wire_stream *from = p.ends[0].stream, *to = p.ends[1].stream;
    assert_int_equal(wire_stream_exchange(to, &b, 100), 0); /* none */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wire_stream_send(from, "prompt", 6), 6);
        assert_int_equal(wire_stream_exchange(to, &b, 5), 0); /* too many */
        assert_int_equal(wire_stream_exchange(to, &b, 6), 6);
        assert_int_equal(b.n, 6);
        assert_memory_equal(b.data, "prompt", 6);
        b.n = 0;
        assert_int_equal(wire_stream_receive(to, p.ends[1].bytes, 1), -1);
        assert_int_equal(errno, EAGAIN);
    }
    assert_int_equal(wire_stream_send(from, "rest", 4), 4);
    assert_int_equal(wire_stream_receive(to, p.ends[1].bytes, 1), 1);
    assert_int_equal(wire_stream_exchange(to, &b, 100), 0); /* some are read already */
    assert_int_equal(wire_stream_receive(to, p.ends[1].bytes, 9), 3);
    turns(&p, 2);
    /* A sender that waits for space is told of it, and the reader of the end. */
    uint8_t *much = calloc(1, N_BYTES);
    assert_non_null(much);
    p.ends[1].exchange = &b;
    ssize_t n_sent = wire_stream_send(from, much, N_BYTES);
    assert_in_range(n_sent, 1, N_BYTES - 1);
    wire_stream_await_space(from);
    wire_stream_end(from);
    turns(&p, 4);
    assert_int_equal(b.n, n_sent);
    assert_int_equal(p.ends[0].n_writable, 1);
    assert_true(p.ends[1].ended);
    free(much);
    buffer_free(&b);
    close_pair(&p);

    open_pair(&p, false);
    assert_int_equal(wire_stream_send(p.ends[0].stream, "x", 1), 1);
    assert_int_equal(wire_stream_exchange(p.ends[1].stream, &b, 100), 0); /* a socket has no buffer here */
    close_pair(&p);
}

static void test_no_socket(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    assert_null(wire_stream_of_socket(base, -1));
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_no_socket),
    };
    quire_hash_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
