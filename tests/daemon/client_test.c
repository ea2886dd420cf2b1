/* engine_client and daemon, joined by a socketpair on one loop as in `quire serve MODEL`, over the fake engine. */
#include "server/wire/frame.h"
#include "tests/daemon/heard.h"
#include "tests/daemon/link_calls.h"
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_drained(void *context)
{
    return ((struct heard *)context)->drained;
}
static bool is_closed(void *context)
{
    return ((struct heard *)context)->closed;
}

static bool in_memory; /* how client and daemon are joined; all tests run with both */

static void join(struct rig *rig, struct heard *h, const struct wire_hello *hello)
{
    int fds[2];
    struct wire_stream *ends[2];
    struct quire_error err;
    memset(h, 0, sizeof *h);
    if (in_memory) {
        assert_int_equal(wire_stream_pair(rig->base, ends, &err), QUIRE_OK);
    } else {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        ends[0] = wire_stream_of_socket(rig->base, fds[0]);
        ends[1] = wire_stream_of_socket(rig->base, fds[1]);
    }
    assert_int_equal(daemon_add_connection(rig->d, ends[0], &err), QUIRE_OK);
    assert_int_equal(engine_client_open(rig->base, ends[1], hello, NULL, &heard_events, h, &h->client, &err), QUIRE_OK);
    assert_false(h->ready);
    assert_true(rig_run_until(rig, is_ready_or_closed, h));
}

static void join_well(struct rig *rig, struct heard *h)
{
    struct wire_hello hello;
    our_hello(&hello);
    join(rig, h, &hello);
    assert_true(h->ready);
}

/* ---- tests ---- */

static void test_echo(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s;
    struct request_spec what;
    (void)state;
    rig_open(&rig, NULL, NULL);
    join_well(&rig, &h);
    assert_string_equal(h.model, "fake");
    assert_int_equal(h.hello.vocab_size, 1000);
    assert_int_equal(h.hello.max_model_len, 4096);
    assert_int_equal(h.hello.max_num_seqs, 256);
    assert_int_equal(h.hello.block_tokens, 16);
    assert_int_equal(h.hello.n_eos, 1);

    stream_open(&s, &h);
    submit_of(&what);
    submit(&h, &s, &what);
    assert_int_equal(engine_client_n_live(h.client), 1);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_int_equal(engine_client_n_live(h.client), 0);
    assert_int_equal(s.accepted, 1);
    assert_int_equal(s.n_tokens, 6);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(s.tokens[i].token, heard_prompt[i]);
    assert_int_equal(s.tokens[5].token, 2);
    assert_false(s.tokens[0].has_logprob);
    assert_int_equal(s.done, 1);
    assert_int_equal(s.dones[0].finish, WIRE_FINISH_STOP);
    assert_true(s.dones[0].has_stop_token);
    assert_int_equal(s.dones[0].stop_token, 2);
    assert_int_equal(s.dones[0].n_prompt, 5);
    assert_int_equal(s.dones[0].n_generated, 6);
    free(s.tokens);
    engine_client_close(h.client);
    rig_close(&rig);
}

static void test_choices_and_logprob_bits(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.mode = FAKE_ENGINE_COUNT;
    fake.tokens_per_step = 3;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    stream_open(&s, &h);
    submit_of(&what);
    what.n = 4;
    what.max_tokens = 50;
    what.n_logprobs = 20;
    what.n_prompt_logprobs = 3;
    submit(&h, &s, &what);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_int_equal(s.n_tokens, 200);
    assert_int_equal(s.done, 4);
    uint32_t next[4] = {0};
    for (uint32_t i = 0; i < s.n_tokens; i++) {
        const struct wire_token *t = &s.tokens[i];
        struct fake_logprob want;
        assert_true(t->choice < 4);
        uint32_t at = next[t->choice]++;
        assert_int_equal(t->token, 51 + t->choice + at);
        fake_engine_logprob(t->token, at, 1000, &want);
        assert_true(t->has_logprob);
        assert_memory_equal(&t->logprob, &want.logprob, 4);
        assert_int_equal(t->rank, want.rank);
        assert_int_equal(t->n_top, 20);
        assert_memory_equal(t->top_ids, want.top_ids, 80);
        assert_memory_equal(t->top_logprobs, want.top_logprobs, 80);
    }
    assert_int_equal(s.n_prompt, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(s.prompt[i].token, heard_prompt[i + 1]);
        assert_int_equal(s.prompt[i].n_top, 3);
    }
    free(s.tokens);
    engine_client_close(h.client);
    rig_close(&rig);
}

/* The output of one step for a request may need several frames. None is over the limit, and none waits for credit
 * for ever. */
static void test_long_prompt_logprobs(void **state)
{
    enum { N = 2000 };
    struct rig rig;
    struct heard h;
    struct stream s;
    struct wire_hello hello;
    struct request_spec what;
    static uint32_t ids[N];
    (void)state;
    rig_open(&rig, NULL, NULL);
    our_hello(&hello);
    hello.initial_credit = WIRE_MIN_CREDIT;
    join(&rig, &h, &hello);
    stream_open(&s, &h);
    submit_of(&what);
    what.prompt = ids;
    what.n_prompt = N;
    what.max_tokens = 1;
    what.n_prompt_logprobs = 20;
    submit(&h, &s, &what);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_int_equal(s.lost, 0);
    assert_int_equal(s.n_prompt, N - 1);
    assert_int_equal(s.prompt[63].n_top, 20);
    free(s.tokens);
    engine_client_close(h.client);
    rig_close(&rig);
}

static void test_refusals(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s, full;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct quire_error err;
    (void)state;
    rig_default_options(&options, &fake);
    fake.max_live = 0;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    stream_open(&full, &h);
    submit_of(&what);
    submit(&h, &full, &what);
    assert_true(rig_run_until(&rig, is_over, &full));
    assert_int_equal(full.refused, 1);
    assert_int_equal(full.accepted, 0);
    assert_int_equal(full.refuse.status, QUIRE_EXHAUSTED);
    assert_int_equal(full.refuse.retry_after_ms, 1500);
    assert_string_equal(full.message, "the queue is full");

    stream_open(&s, &h);
    uint32_t bad[] = {5000};
    what.prompt = bad;
    what.n_prompt = 1;
    submit(&h, &s, &what);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_int_equal(s.refuse.status, QUIRE_INVALID);
    assert_non_null(strstr(s.message, "token 5000"));
    assert_string_equal(s.parameter, "prompt");
    assert_int_equal(engine_client_n_live(h.client), 0);

    /* Too large for a frame: reported at once, and nothing is sent. */
    uint32_t n = (32u << 20) / 4;
    uint32_t *huge = calloc(n, sizeof *huge);
    assert_non_null(huge);
    what.prompt = huge;
    what.n_prompt = n;
    assert_int_equal(submit_to(h.client, &what, &stream_events, &s, &s.id, &err), QUIRE_INVALID);
    assert_int_equal(engine_client_n_live(h.client), 0);
    free(huge);
    free(s.tokens);
    free(full.tokens);
    engine_client_close(h.client);
    rig_close(&rig);
}

static bool all_cancelled(void *context)
{
    struct rig *rig = context;
    return fake_engine_n_live(rig->engine) == 0;
}

static bool has_tokens(void *context)
{
    return ((struct stream *)context)->n_tokens > 10;
}

static bool has_done(void *context)
{
    return ((struct stream *)context)->done > 0;
}

struct growing {
    const struct stream *stream;
    uint32_t n_tokens; /* number of tokens it had */
};

static bool has_grown(void *context)
{
    const struct growing *g = context;
    return g->stream->n_tokens > g->n_tokens;
}

static bool idle_was_said(void *context)
{
    struct rig *rig = context;
    return atomic_load(&rig->idle_calls) > 0;
}

static bool one_is_live(void *context)
{
    const struct rig *rig = context;
    return fake_engine_n_live(rig->engine) <= 1;
}

/* At 500 tokens a second for longer than a test lasts. */
#define ENDLESS_TOKENS 100000u
#define ENDLESS_INTERVAL_US 2000u

static void endless(struct request_spec *what)
{
    submit_of(what);
    what->ignore_eos = true;
    what->max_tokens = ENDLESS_TOKENS;
}

static void test_cancel(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s[3];
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = ENDLESS_INTERVAL_US;
    fake.max_model_len = 2 * ENDLESS_TOKENS;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    endless(&what);
    for (int i = 0; i < 3; i++)
        stream_open(&s[i], &h);
    s[1].cancel_at = 20; /* from within its callback */
    what.n = 2;
    for (int i = 0; i < 3; i++)
        submit(&h, &s[i], &what);
    assert_true(rig_run_until(&rig, has_tokens, &s[0]));
    uint32_t seen = s[0].n_tokens;
    const struct completion_source source = engine_client_source(h.client);
    assert_true(source.predict(source.self, s[2].id, heard_prompt, 5));
    assert_false(source.predict(source.self, 4711, heard_prompt, 5));
    assert_true(source.report_hits(source.self, (const uint32_t[]){1, 20, 300, 4000, 50000, UINT32_MAX}, 2));
    cancel_at(h.client, s[0].id, -1);
    assert_false(source.predict(source.self, s[0].id, heard_prompt, 5));
    cancel_at(h.client, s[0].id, -1);
    cancel_at(h.client, 4711, -1);
    cancel_at(h.client, s[2].id, 1);
    assert_true(rig_run_until(&rig, has_done, &s[2]));
    assert_int_equal(s[2].done, 1);
    assert_int_equal(s[2].dones[0].choice, 1);
    assert_int_equal(s[2].dones[0].finish, WIRE_FINISH_CANCELLED);
    assert_int_equal(s[2].dones[0].n_predicted, 5);
    assert_false(s[2].dones[0].last);
    struct growing after = {&s[2], s[2].n_tokens};
    assert_true(rig_run_until(&rig, has_grown, &after)); /* choice 0 goes on */
    cancel_at(h.client, s[2].id, -1);
    assert_true(rig_run_until(&rig, all_cancelled, &rig));
    rig_run_for(&rig, 20);
    assert_int_equal(s[0].n_tokens, seen);
    assert_int_equal(s[1].n_tokens, 20);
    assert_int_equal(fake_engine_sum_served(rig.engine), 1 + 20 + 300 + 4000 + 50000 + (uint64_t)UINT32_MAX);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s[i].lost + s[i].last, 0);
        free(s[i].tokens);
    }
    assert_int_equal(fake_engine_n_cancelled(rig.engine), 3);
    engine_client_close(h.client);
    rig_close(&rig);
}

static void test_client_gone_cancels(void **state)
{
    struct rig rig;
    struct heard h, other;
    struct stream s, t, u;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = ENDLESS_INTERVAL_US;
    fake.max_model_len = 2 * ENDLESS_TOKENS;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    join_well(&rig, &other);
    endless(&what);
    stream_open(&s, &h);
    stream_open(&t, &h);
    stream_open(&u, &other);
    s.close_at_token = true; /* the client closes within a callback */
    submit(&h, &s, &what);
    submit(&h, &t, &what);
    submit(&other, &u, &what);
    assert_true(rig_run_until(&rig, has_tokens, &u));
    assert_true(rig_run_until(&rig, one_is_live, &rig));
    assert_int_equal(fake_engine_n_live(rig.engine), 1);
    assert_int_equal(s.n_tokens, 1);
    assert_int_equal(s.lost + t.lost, 0);
    assert_false(h.closed);
    assert_int_equal(u.lost + u.last, 0); /* the other client's request goes on */
    engine_client_close(other.client);
    assert_true(rig_run_until(&rig, all_cancelled, &rig));
    free(s.tokens);
    free(t.tokens);
    free(u.tokens);
    rig_close(&rig);
}

static void test_engine_gone(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s, t;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct quire_error err;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = 200;
    rig_open(&rig, &options, &fake);
    struct event_base *base = event_base_new();
    int fds[2];
    struct wire_hello hello;
    memset(&h, 0, sizeof h);
    our_hello(&hello);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(daemon_add_connection(rig.d, wire_stream_of_socket(rig.base, fds[0]), &err), QUIRE_OK);
    assert_int_equal(
        engine_client_open(base, wire_stream_of_socket(base, fds[1]), &hello, NULL, &heard_events, &h, &h.client, &err),
        QUIRE_OK);
    stream_open(&s, &h);
    stream_open(&t, &h);
    endless(&what);
    assert_int_equal(submit_to(h.client, &what, &stream_events, &s, &s.id, &err), QUIRE_IO);
    assert_non_null(strstr(err.text, "not ready"));
    const int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    while (!h.ready && rig_now_ms() < until) {
        rig_run_for(&rig, 2);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    submit(&h, &s, &what);
    submit(&h, &t, &what);
    while (s.n_tokens == 0 && rig_now_ms() < until) {
        rig_run_for(&rig, 2);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    rig_close(&rig);
    while (!h.closed && rig_now_ms() < until)
        event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    assert_true(h.closed);
    assert_int_equal(s.lost, 1);
    assert_int_equal(t.lost, 1);
    assert_non_null(strstr(s.message, "closed"));
    assert_int_equal(engine_client_n_live(h.client), 0);
    assert_int_equal(submit_to(h.client, &what, &stream_events, &s, &s.id, &err), QUIRE_IO);
    assert_int_equal(engine_client_ask_stats(h.client, 0), QUIRE_IO);
    cancel_at(h.client, 1, -1);
    engine_client_drain(h.client);
    engine_client_close(h.client);
    event_base_free(base);
    free(s.tokens), free(t.tokens);
}

static void test_mismatches(void **state)
{
    struct rig rig;
    struct heard h;
    struct wire_hello hello;
    (void)state;
    rig_open(&rig, NULL, NULL);
    our_hello(&hello);
    hello.identity_text.bytes[0] ^= 1;
    join(&rig, &h, &hello);
    assert_true(h.closed && !h.ready);
    assert_non_null(strstr(h.why, "identity_text"));
    assert_non_null(strstr(h.why, "10111111"));
    engine_client_close(h.client);
    our_hello(&hello);
    hello.identity_config.bytes[31] ^= 1;
    join(&rig, &h, &hello);
    assert_true(h.closed && !h.ready);
    assert_non_null(strstr(h.why, "identity_config"));
    engine_client_close(h.client);
    our_hello(&hello);
    hello.identity_generation.bytes[31] = 1;
    join(&rig, &h, &hello);
    assert_true(h.closed && !h.ready);
    assert_non_null(strstr(h.why, "identity_generation"));
    engine_client_close(h.client);
    our_hello(&hello);
    hello.arithmetic = "law=7\n";
    hello.n_arithmetic = 6;
    join(&rig, &h, &hello);
    assert_true(h.closed && !h.ready);
    assert_non_null(
        strstr(h.why, "the engine computes by law=1 of docs/internals/numerics.md, this front end knows law=7:"));
    engine_client_close(h.client);
    our_hello(&hello);
    hello.arithmetic = "law=1\n";
    hello.n_arithmetic = 6;
    join(&rig, &h, &hello);
    assert_true(h.ready);
    engine_client_close(h.client);
    join_well(&rig, &h);
    engine_client_close(h.client);
    rig_close(&rig);
    rig_open(&rig, NULL, &(struct fake_engine_options){.tells_no_arithmetic = true});
    join(&rig, &h, &hello);
    assert_true(h.closed && !h.ready);
    assert_non_null(strstr(h.why, "the engine computes by an older law"));
    engine_client_close(h.client);
    rig_close(&rig);
}

static bool stats_came(void *context)
{
    return ((struct heard *)context)->stats_came;
}

static void test_stats_and_drain(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s, late;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    stream_open(&s, &h);
    stream_open(&late, &h);
    submit_of(&what);
    submit(&h, &s, &what);
    assert_int_equal(engine_client_ask_stats(h.client, 0), QUIRE_OK);
    assert_int_equal(engine_client_ask_stats(h.client, 0), QUIRE_OK);
    assert_true(rig_run_until(&rig, stats_came, &h));
    assert_int_equal(h.stats.n_running, 1);
    assert_true(h.stats.n_prompt_tokens == 5);
    assert_int_equal(h.stats.n_blocks, 1024);
    assert_int_equal(h.stats.n_block_tokens, 16);
    assert_false(h.stats.draining);

    daemon_drain(rig.d);
    assert_false(daemon_idle(rig.d));
    assert_true(rig_run_until(&rig, is_drained, &h));
    assert_int_equal(rig.idle_calls, 0);
    submit(&h, &late, &what);
    assert_true(rig_run_until(&rig, is_over, &late));
    assert_int_equal(late.refuse.status, QUIRE_EXHAUSTED);
    fake_engine_release(rig.engine);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_int_equal(s.n_tokens, 6);
    assert_true(rig_run_until(&rig, is_closed, &h));
    assert_int_equal(s.lost + late.lost, 0);
    assert_true(rig_run_until(&rig, idle_was_said, &rig));
    rig_run_for(&rig, 50);
    assert_int_equal(rig.idle_calls, 1); /* once */
    assert_true(daemon_idle(rig.d));
    engine_client_close(h.client);
    free(s.tokens), free(late.tokens);
    rig_close(&rig);
}

/* Every row of base/stats/rows.h that the engine fills in arrives as it was counted. */
static void test_every_row_of_stats(void **state)
{
    struct rig rig;
    struct heard h;
    struct engine_stats stats;
    (void)state;
    rig_open(&rig, NULL, NULL);
    join_well(&rig, &h);
    memset(&stats, 0, sizeof stats);
#define VALUE_U32(tag) (1000u + (tag))
#define VALUE_U64(tag) ((UINT64_C(1) << 40) + (tag))
#define VALUE_F64(tag) ((tag) + 0.5)
#define VALUE_BOOL(tag) true
#define SET(member, type, tag, from, ...) STATS_WHEN(STATS_IS_ENGINE_##from)(stats.member = VALUE_##type(tag);)
    STATS_ROWS(SET)
    fake_engine_set_stats(rig.engine, &stats);
    engine_stats(rig.engine, &stats); /* it makes kv_usage itself */
    assert_int_equal(engine_client_ask_stats(h.client, 0), QUIRE_OK);
    assert_true(rig_run_until(&rig, stats_came, &h));
#define SAME(member, type, tag, from, ...) \
    STATS_WHEN(STATS_IS_ENGINE_##from)(assert_true(h.stats.member == stats.member);)
    STATS_ROWS(SAME)
    engine_client_close(h.client);
    rig_close(&rig);
}

/* Every client receives the reason, whether its request ran or not, and no new client is accepted. */
static void test_engine_that_died(void **state)
{
    struct rig rig;
    struct heard h, idle;
    struct stream s;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_stream *ends[2];
    struct quire_error err;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    join_well(&rig, &idle);
    stream_open(&s, &h);
    submit_of(&what);
    submit(&h, &s, &what);
    daemon_engine_died(rig.d, "rank 1 has gone");
    assert_true(rig_run_until(&rig, is_closed, &h));
    assert_true(rig_run_until(&rig, is_closed, &idle));
    assert_int_equal(s.lost, 1);
    assert_string_equal(s.message, "the engine has stopped: rank 1 has gone");
    assert_string_equal(idle.why, s.message);
    assert_int_equal(wire_stream_pair(rig.base, ends, &err), QUIRE_OK);
    assert_int_equal(daemon_add_connection(rig.d, ends[0], &err), QUIRE_EXHAUSTED);
    wire_stream_close(ends[1]);
    fake_engine_release(rig.engine);
    free(s.tokens);
    engine_client_close(h.client);
    engine_client_close(idle.client);
    rig_close(&rig);
}

/* A client that sends DRAIN is closed after its last request is delivered; other clients are not affected. */
static void test_client_drains(void **state)
{
    struct rig rig;
    struct heard h, other;
    struct stream s, t;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = 500;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    join_well(&rig, &other);
    stream_open(&s, &h);
    stream_open(&t, &other);
    submit_of(&what);
    what.max_tokens = 20;
    what.ignore_eos = true;
    submit(&h, &s, &what);
    engine_client_drain(h.client);
    assert_true(rig_run_until(&rig, is_closed, &h));
    assert_int_equal(s.n_tokens, 20);
    assert_int_equal(s.last, 1);
    assert_int_equal(s.lost, 0);
    submit(&other, &t, &what);
    assert_true(rig_run_until(&rig, is_over, &t));
    assert_int_equal(t.n_tokens, 20);
    engine_client_close(h.client);
    engine_client_close(other.client);
    free(s.tokens);
    free(t.tokens);
    rig_close(&rig);
}

/* Many streams with the smallest window: CREDIT keeps them flowing; nothing is lost or reordered. */
static void test_many_streams_small_credit(void **state)
{
    enum { N = 200 };
    struct rig rig;
    struct heard h;
    struct wire_hello hello;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    static struct stream s[N];
    static uint32_t prompts[N][3];
    (void)state;
    rig_default_options(&options, &fake);
    fake.mode = FAKE_ENGINE_COUNT;
    fake.vocab_size = 100000;
    fake.eos = 99999;
    fake.tokens_per_step = 4;
    rig_open(&rig, &options, &fake);
    our_hello(&hello);
    hello.initial_credit = 1;
    join(&rig, &h, &hello);
    assert_true(h.ready);
    submit_of(&what);
    what.max_tokens = 300;
    what.n_logprobs = 5;
    for (uint32_t i = 0; i < N; i++) {
        stream_open(&s[i], &h);
        prompts[i][2] = 100 * i;
        what.prompt = prompts[i];
        what.n_prompt = 3;
        submit(&h, &s[i], &what);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_true(rig_run_until(&rig, is_over, &s[i]));
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(s[i].last, 1);
        assert_int_equal(s[i].n_tokens, 300);
        for (uint32_t k = 0; k < 300; k++)
            assert_int_equal(s[i].tokens[k].token, 100 * i + 1 + k);
        free(s[i].tokens);
    }
    engine_client_close(h.client);
    rig_close(&rig);
}

static void test_request_error(void **state)
{
    struct rig rig;
    struct heard h;
    struct stream s, t;
    struct request_spec what;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.fail_token = 30;
    rig_open(&rig, &options, &fake);
    join_well(&rig, &h);
    stream_open(&s, &h);
    stream_open(&t, &h);
    submit_of(&what);
    submit(&h, &s, &what);
    what.n_prompt = 2;
    submit(&h, &t, &what);
    assert_true(rig_run_until(&rig, is_over, &s));
    assert_true(rig_run_until(&rig, is_over, &t));
    assert_int_equal(s.dones[0].finish, WIRE_FINISH_ERROR);
    assert_string_equal(s.message, "the fake engine was told to fail here");
    assert_string_equal(s.parameter, "fail_token");
    assert_int_equal(s.n_tokens, 2);
    assert_int_equal(t.dones[0].finish, WIRE_FINISH_STOP);
    engine_client_close(h.client);
    free(s.tokens);
    free(t.tokens);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_choices_and_logprob_bits),
        cmocka_unit_test(test_long_prompt_logprobs),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_client_gone_cancels),
        cmocka_unit_test(test_engine_gone),
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_stats_and_drain),
        cmocka_unit_test(test_every_row_of_stats),
        cmocka_unit_test(test_engine_that_died),
        cmocka_unit_test(test_client_drains),
        cmocka_unit_test(test_many_streams_small_credit),
        cmocka_unit_test(test_request_error),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    in_memory = true;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
