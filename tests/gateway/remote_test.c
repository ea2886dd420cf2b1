/* Calls whose replies do not come, against a socket that listens and says nothing. */
#include "base/clock.h"
#include "server/gateway/remote/remote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

struct bench {
    struct event_base *base;
    struct remote *remote;
    char socket[64];
    int fd;
    uint32_t n_late;
    uint64_t late_ms; /* when the last one was found late */
};

static void ignore_head(void *context, int status)
{
    (void)context;
    (void)status;
}
static void ignore_body(void *context, const char *bytes, size_t n)
{
    (void)context;
    (void)bytes;
    (void)n;
}
static void count(void *context, enum remote_end how, const char *why)
{
    struct bench *b = context;
    assert_int_equal(how, REMOTE_TIMEOUT);
    assert_string_equal(why, "no reply in time");
    b->n_late++;
    b->late_ms = quire_now_ms();
}

static void begin(struct bench *b, uint32_t first_byte_ms, void (*on_end)(void *, enum remote_end, const char *))
{
    const struct remote_request q = {.method = "GET",
                                     .url = "http://localhost/",
                                     .connect_ms = 60000,
                                     .first_byte_ms = first_byte_ms,
                                     .socket = b->socket};
    const struct remote_events events = {ignore_head, ignore_body, on_end};
    struct remote_call *call;
    assert_int_equal(remote_begin(b->remote, &q, &events, b, &call, NULL), QUIRE_OK);
}

static void count_and_begin(void *context, enum remote_end how, const char *why)
{
    count(context, how, why);
    usleep(3000); /* the clock goes on before the next call begins */
    begin(context, 60000, count);
}

static void open_bench(struct bench *b)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memset(b, 0, sizeof *b);
    const int n = snprintf(b->socket, sizeof b->socket, "quire-remote-test-%d", (int)getpid());
    memcpy(name.sun_path + 1, b->socket, (size_t)n);
    b->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(b->fd >= 0);
    assert_int_equal(
        bind(b->fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)n),
        0);
    assert_int_equal(listen(b->fd, 16), 0);
    b->base = event_base_new();
    assert_non_null(b->base);
    assert_int_equal(remote_open(b->base, &b->remote, NULL), QUIRE_OK);
}

static void run_for(struct bench *b, uint32_t ms)
{
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (long)(ms % 1000) * 1000};
    event_base_loopexit(b->base, &tv);
    event_base_dispatch(b->base);
}

static void close_bench(struct bench *b)
{
    remote_close(b->remote);
    event_base_free(b->base);
    close(b->fd);
}

static void a_reply_is_late(void **state)
{
    struct bench b;
    (void)state;
    open_bench(&b);
    const uint64_t begun_ms = quire_now_ms();
    begin(&b, 100, count);
    while (b.n_late == 0)
        run_for(&b, 50);
    assert_true(b.late_ms - begun_ms >= 95); /* the loop's clock may be 4 ms behind */
    close_bench(&b);
}

/* A call that begins because a late one ended has its own time. */
static void the_next_call_is_not_late(void **state)
{
    struct bench b;
    (void)state;
    open_bench(&b);
    begin(&b, 100, count_and_begin);
    while (b.n_late == 0)
        run_for(&b, 50);
    run_for(&b, 300);
    assert_int_equal(b.n_late, 1);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_is_late),
        cmocka_unit_test(the_next_call_is_not_late),
    };
    return RUN_ISOLATED(tests, NULL, NULL);
}
