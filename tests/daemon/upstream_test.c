/* The states of an upstream, over daemons with the fake engine: in memory, and at an address where the daemon comes
 * and goes. */
#include "base/clock.h"
#include "server/link/upstream.h"
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The events of its user and its owner in order, one letter each. */
struct log {
    char said[64];
    struct upstream *u;
    enum upstream_state wanted;
};

static void say(void *context, char what)
{
    struct log *log = context;
    size_t n = strlen(log->said);
    assert_true(n + 1 < sizeof log->said);
    log->said[n] = what;
    log->said[n + 1] = '\0';
}

static void on_replace(void *context)
{
    say(context, 'r');
}
static void on_replaced(void *context)
{
    say(context, 'R');
}
static bool on_ready(void *context, const struct wire_hello *hello)
{
    assert_true(hello->max_model_len > 0);
    say(context, 'h');
    return true;
}
static void on_stats(void *context, const struct wire_stats *stats)
{
    (void)context;
    (void)stats;
}
static void on_control(void *context, const struct wire_refuse *refuse)
{
    (void)context;
    (void)refuse;
}
static void on_closed(void *context)
{
    say(context, 'c');
}
static void ask(void *context)
{
    struct log *log = context;
    upstream_ask_stats(log->u, 0);
}
static const struct upstream_user user = {on_replace, on_replaced, on_ready, on_stats, on_control, on_closed, ask};

static void ready(void *context, bool is_first)
{
    say(context, is_first ? '1' : '2');
}
static void waiting(void *context, const char *why)
{
    assert_true(why[0] != '\0');
    say(context, 'w');
}
static void lost(void *context, const char *what, const char *why)
{
    assert_string_equal(what, "the engine is unavailable");
    assert_true(why[0] != '\0');
    say(context, 'L');
}

static void open_it(struct log *log, struct event_base *base)
{
    struct upstream_identity identity = {.model = "fake"};
    memset(identity.text.bytes, 0x11, sizeof identity.text.bytes); /* the rig's */
    memset(identity.config.bytes, 0x22, sizeof identity.config.bytes);
    const struct upstream_owner owner = {.ready = ready, .waiting = waiting, .lost = lost, .context = log};
    *log = (struct log){.u = NULL};
    assert_int_equal(upstream_open(base, &user, log, &log->u, NULL), QUIRE_OK);
    upstream_set_identity(log->u, &identity, &owner);
    assert_int_equal(upstream_state(log->u), UPSTREAM_STARTING);
    assert_false(upstream_is_connected(log->u));
}

static bool is_wanted(void *context)
{
    struct log *log = context;
    return upstream_state(log->u) == log->wanted;
}

static bool is_accepted(void *context)
{
    return strchr(((struct log *)context)->said, 'a') != NULL;
}

static bool is_cut(void *context)
{
    return !upstream_is_connected(((struct log *)context)->u);
}

static void await(struct rig *rig, struct log *log, enum upstream_state wanted)
{
    log->wanted = wanted;
    assert_true(rig_run_until(rig, is_wanted, log));
    assert_int_equal(upstream_is_connected(log->u), wanted == UPSTREAM_READY || wanted == UPSTREAM_DRAINING);
}

static void attach(struct rig *rig, struct log *log, struct daemon *d)
{
    struct wire_stream *ends[2];
    assert_int_equal(wire_stream_pair(rig->base, ends, NULL), QUIRE_OK);
    assert_int_equal(daemon_add_connection(d, ends[0], NULL), QUIRE_OK);
    assert_int_equal(upstream_attach(log->u, ends[1], NULL), QUIRE_OK);
}

static void on_accepted(void *context, uint64_t id)
{
    (void)id;
    say(context, 'a');
}
static void on_token(void *context, const struct wire_token *token)
{
    (void)context;
    (void)token;
}
static void on_refused(void *context, const struct wire_refuse *refuse)
{
    (void)refuse;
    say(context, 'x');
}
static void on_done(void *context, const struct wire_done *done)
{
    (void)done;
    say(context, 'd');
}
static void on_lost(void *context, const char *why)
{
    (void)why;
    say(context, 'l');
}
static const struct completion_events request_events = {.on_accepted = on_accepted,
                                                        .on_refused = on_refused,
                                                        .on_token = on_token,
                                                        .on_prompt_logprob = on_token,
                                                        .on_done = on_done,
                                                        .on_lost = on_lost};

static void submit(struct log *log)
{
    static const uint32_t prompt[] = {5, 6};
    const struct completion_source source = upstream_source(log->u);
    struct request_spec spec;
    uint64_t id;
    request_spec_default(&spec);
    spec.prompt = prompt;
    spec.n_prompt = 2;
    spec.max_tokens = 3;
    assert_int_equal(source.submit(source.self, &spec, NULL, &request_events, log, &id, NULL), QUIRE_OK);
}

/* A second daemon for the same engine, which may close while the rig's stays. */
static struct daemon *another(struct rig *rig)
{
    struct daemon_options options;
    struct fake_engine_options fake;
    struct daemon *d;
    rig_default_options(&options, &fake);
    assert_int_equal(daemon_create(rig->base, &options, &d, NULL), QUIRE_OK);
    daemon_set_engine(d, rig->engine);
    return d;
}

static void test_in_this_process(void **state)
{
    struct rig rig;
    struct log log;
    struct daemon_options options;
    struct fake_engine_options fake;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    rig_open(&rig, &options, &fake);
    open_it(&log, rig.base);
    assert_int_equal(upstream_ask_stats(log.u, 0), QUIRE_IO);
    assert_int_equal(upstream_control(log.u, "unpin all"), QUIRE_IO);
    struct daemon *d = another(&rig);
    attach(&rig, &log, d);
    await(&rig, &log, UPSTREAM_READY);
    assert_true(upstream_was_ready(log.u));
    assert_int_equal(upstream_ask_stats(log.u, 0), QUIRE_OK);
    assert_string_equal(log.said, "rRh1");

    daemon_close(d); /* it closes, and does not come back by itself */
    await(&rig, &log, UPSTREAM_GONE);
    assert_string_equal(log.said, "rRh1cL");
    attach(&rig, &log, rig.d);
    assert_int_equal(upstream_state(log.u), UPSTREAM_GONE);
    await(&rig, &log, UPSTREAM_READY);
    assert_string_equal(log.said, "rRh1cLrRh2");

    submit(&log);
    assert_true(rig_run_until(&rig, is_accepted, &log));
    daemon_drain(rig.d); /* it finishes its requests */
    await(&rig, &log, UPSTREAM_DRAINING);
    fake_engine_release(rig.engine);
    await(&rig, &log, UPSTREAM_GONE);
    assert_string_equal(log.said, "rRh1cLrRh2adcL");
    upstream_close(log.u);
    rig_close(&rig);
}

/* FAILED is final: no later event of the connection changes it. */
static void test_failed(void **state)
{
    struct rig rig;
    struct log log;
    (void)state;
    rig_open(&rig, NULL, NULL);
    open_it(&log, rig.base);
    attach(&rig, &log, rig.d);
    await(&rig, &log, UPSTREAM_READY);
    upstream_fail(log.u, NULL);
    assert_int_equal(upstream_state(log.u), UPSTREAM_FAILED);
    assert_true(upstream_is_connected(log.u));
    upstream_fail(log.u, "it hangs");
    assert_true(rig_run_until(&rig, is_cut, &log));
    rig_run_for(&rig, 50);
    assert_int_equal(upstream_state(log.u), UPSTREAM_FAILED);
    assert_false(upstream_is_connected(log.u));
    assert_string_equal(log.said, "rRh1c"); /* an upstream that reports a hang leaves the loop */
    upstream_close(log.u);
    rig_close(&rig);
}

/* The upstream waits for the address, finds it, loses it, waits again without an event to the owner, and finds it
 * again. */
static void test_at_an_address(void **state)
{
    struct rig rig;
    struct log log;
    char path[256], address[300];
    (void)state;
    rig_open(&rig, NULL, NULL);
    rig_path(&rig, "upstream.sock", path, sizeof path);
    snprintf(address, sizeof address, "unix:%s", path);
    open_it(&log, rig.base);
    assert_int_equal(upstream_connect(log.u, address, NULL), QUIRE_OK);
    assert_string_equal(log.said, "w");
    assert_int_equal(upstream_state(log.u), UPSTREAM_STARTING);
    struct daemon *d = another(&rig);
    assert_int_equal(daemon_listen(d, address, NULL, NULL), QUIRE_OK);
    await(&rig, &log, UPSTREAM_READY);
    assert_string_equal(log.said, "wrRh1");

    daemon_close(d);
    await(&rig, &log, UPSTREAM_GONE);
    assert_string_equal(log.said, "wrRh1c");
    unlink(path);
    assert_int_equal(daemon_listen(rig.d, address, NULL, NULL), QUIRE_OK);
    await(&rig, &log, UPSTREAM_READY);
    assert_string_equal(log.said, "wrRh1crRh2");

    upstream_drain(log.u); /* after this, a lost daemon is not awaited */
    daemon_drain(rig.d);
    await(&rig, &log, UPSTREAM_GONE);
    assert_string_equal(log.said, "wrRh1crRh2c");
    upstream_close(log.u);
    rig_close(&rig);
}

/* Waiting corrects neither. */
static void test_what_cannot_be(void **state)
{
    struct rig rig;
    struct log log;
    struct quire_error err;
    (void)state;
    rig_open(&rig, NULL, NULL);
    open_it(&log, rig.base);
    assert_int_equal(upstream_connect(log.u, "nowhere", &err), QUIRE_INVALID);
    upstream_close(log.u);
    open_it(&log, rig.base);
    const struct upstream_identity identity = {.model = "fake", .key_file = "/there/is/none"};
    upstream_set_identity(log.u, &identity, NULL);
    assert_int_not_equal(upstream_connect(log.u, "unix:/nowhere", &err), QUIRE_OK);
    upstream_close(log.u);
    assert_string_equal(log.said, "");
    upstream_close(NULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_this_process),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_at_an_address),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
