/* Every allocation of a call to an engine client, an upstream or a heartbeat fails once, those of libevent included: the
 * call reports it and leaks nothing. A request that could not be written gets no event. The connection either carries the
 * next request or is lost with an event. */
#include "server/link/heartbeat.h"
#include "server/link/upstream.h"
#include "tests/daemon/heard.h"
#include "tests/daemon/link_calls.h"
#include "tests/daemon/rig.h"
#include "tests/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_open(void **state)
{
    struct event_base *base = event_base_new();
    long n = 0;
    (void)state;
    for (;; n++) {
        struct heard h;
        struct wire_hello hello;
        struct quire_error err = {.text = ""};
        int fds[2];
        memset(&h, 0, sizeof h);
        our_hello(&hello);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        struct wire_stream *stream = wire_stream_of_socket(base, fds[0]);
        fault_at(n);
        int status = engine_client_open(base, stream, &hello, NULL, &heard_events, &h, &h.client, &err);
        bool failed = fault_end();
        close(fds[1]);
        if (!failed) {
            assert_int_equal(status, QUIRE_OK);
            engine_client_close(h.client);
            break;
        }
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_null(h.client);
        assert_non_null(strstr(err.text, "memory"));
    }
    assert_true(n >= 4);
    event_base_free(base);
}

static void join(struct rig *rig, struct heard *h)
{
    struct wire_hello hello;
    struct wire_stream *ends[2];
    memset(h, 0, sizeof *h);
    our_hello(&hello);
    assert_int_equal(wire_stream_pair(rig->base, ends, NULL), QUIRE_OK);
    assert_int_equal(daemon_add_connection(rig->d, ends[0], NULL), QUIRE_OK);
    assert_int_equal(engine_client_open(rig->base, ends[1], &hello, NULL, &heard_events, h, &h->client, NULL),
                     QUIRE_OK);
    assert_true(rig_run_until(rig, is_ready_or_closed, h) && h->ready);
}

/* The calls of a request's owner. Returns the status of the submission. */
static int call_all(struct heard *h, struct stream *s, uint32_t *n_called)
{
    static const uint32_t words[3] = {1, 0, 2};
    static const uint32_t many[1 << 16]; /* more than the buffer of frames has: it grows, and that may fail */
    struct request_spec what;
    struct quire_error err;
    const struct completion_source source = engine_client_source(h->client);
    submit_of(&what);
    what.allowed_token_ids = many;
    what.n_allowed_token_ids = sizeof many / sizeof *many;
    int status = submit_to(h->client, &what, &stream_events, s, &s->id, &err);
    if (status)
        return status;
    if (source.predict)
        source.predict(source.self, s->id, heard_prompt, 3);
    if (source.report_hits)
        source.report_hits(source.self, words, 1);
    engine_client_ask_stats(h->client, 1);
    *n_called += 1;
    return QUIRE_OK;
}

static void test_submit(void **state)
{
    long n = 0;
    uint32_t n_called = 0;
    (void)state;
    for (bool failed = true; failed; n++) {
        struct rig rig;
        struct heard h;
        struct stream s, next;
        struct request_spec what;
        struct quire_error err;
        rig_open(&rig, NULL, NULL);
        join(&rig, &h);
        stream_open(&s, &h);
        stream_open(&next, &h);
        fault_at(n);
        int status = call_all(&h, &s, &n_called);
        failed = fault_end();
        submit_of(&what);
        if (status == QUIRE_OK) {
            assert_true(rig_run_until(&rig, is_over, &s));
            assert_int_equal(s.lost + (s.last > 0), 1);
        } else {
            assert_int_equal(status, QUIRE_NO_MEMORY);
        }
        int later = submit_to(h.client, &what, &stream_events, &next, &next.id, &err);
        if (later == QUIRE_OK) {
            assert_true(rig_run_until(&rig, is_over, &next));
            assert_int_equal(next.lost + (next.last > 0), 1);
        }
        if (later != QUIRE_OK || next.lost)
            assert_true(rig_run_until(&rig, is_ready_or_closed, &h) && failed);
        assert_true(status == QUIRE_OK || s.accepted + s.refused + s.lost + s.done == 0);
        assert_int_equal(engine_client_n_live(h.client), 0);
        engine_client_close(h.client);
        free(s.tokens);
        free(next.tokens);
        rig_close(&rig);
    }
    assert_true(n > 3 && n_called > 1);
}

static void on_user(void *context)
{
    (void)context;
}

static bool lives(void *context)
{
    (void)context;
    return true;
}

static void test_heartbeat(void **state)
{
    struct event_base *base = event_base_new();
    const struct heartbeat_calls calls = {.lives = lives, .lost = on_user};
    struct heartbeat *p = NULL;
    long n = 0;
    (void)state;
    for (; !p; n++) {
        fault_at(n);
        p = heartbeat_new(base, &calls);
        assert_true(fault_end() == !p);
    }
    assert_int_equal(n, 3); /* the heartbeat and its timer */
    heartbeat_free(p);
    event_base_free(base);
}

static void test_upstream(void **state)
{
    static const struct upstream_user user = {.on_closed = on_user};
    struct event_base *base = event_base_new();
    struct upstream *u;
    (void)state;
    fault_at(0);
    assert_int_equal(upstream_open(base, &user, NULL, &u, NULL), QUIRE_NO_MEMORY);
    assert_true(fault_end());
    assert_null(u);
    assert_int_equal(upstream_open(base, &user, NULL, &u, NULL), QUIRE_OK);
    upstream_close(u);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_heartbeat),
        cmocka_unit_test(test_upstream),
    };
    event_set_mem_functions(malloc, realloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
