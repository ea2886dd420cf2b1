/* The daemon with hand-written clients: two at once, wrong ones, slow ones, silent ones, very many. Its loop runs in
 * its own thread, so ThreadSanitizer tests how loop and engine share data. */
#include "engine/engine.h"
#include "server/wire/address.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "tests/daemon/raw_client.h"
#include "tests/daemon/rig.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define ENDLESS_TOKENS 1000000u /* a request that lasts longer than its test */

struct house { /* a rig that listens */
    struct rig rig;
    char path[96];
};

static void house_open(struct house *h, const struct daemon_options *options, const struct fake_engine_options *fake)
{
    struct quire_error err;
    char address[128];
    rig_open(&h->rig, options, fake);
    rig_path(&h->rig, "s", h->path, sizeof h->path);
    snprintf(address, sizeof address, "unix:%s", h->path);
    assert_int_equal(daemon_listen(h->rig.d, address, NULL, &err), QUIRE_OK);
    rig_start_thread(&h->rig);
}

static const uint32_t prompt[] = {10, 20, 30};

static void check_request(struct raw_client *raw)
{
    uint32_t finish;
    raw_put_submit(raw, 1, prompt, 3, 4, 1);
    raw_send(raw);
    assert_int_equal(raw_read_stream(raw, 1, &finish), 4);
    assert_int_equal(finish, WIRE_FINISH_STOP);
}

/* A request on a fresh connection works. */
static void check_serving(struct house *h)
{
    struct raw_client raw;
    raw_hello(&raw, h->path, MIB);
    check_request(&raw);
    raw_close(&raw);
}

/* ---- well-behaved clients ---- */

static void test_two_clients(void **state)
{
    struct house h;
    struct raw_client a, b;
    uint32_t finish;
    (void)state;
    house_open(&h, NULL, NULL);
    raw_hello(&a, h.path, MIB);
    raw_hello(&b, h.path, MIB);
    /* The same ids on both: ids belong to the connection. */
    raw_put_submit(&a, 7, prompt, 3, 100, 1);
    raw_put_submit(&b, 7, prompt, 3, 50, 2);
    raw_send(&a);
    raw_send(&b);
    assert_int_equal(raw_read_stream(&a, 7, &finish), 100);
    assert_int_equal(finish, WIRE_FINISH_LENGTH);
    assert_int_equal(raw_read_stream(&b, 7, &finish), 100);
    /* An id may be used again after its request has finished. */
    raw_put_submit(&a, 7, prompt, 3, 4, 1);
    raw_send(&a);
    assert_int_equal(raw_read_stream(&a, 7, &finish), 4);
    assert_int_equal(finish, WIRE_FINISH_STOP);
    raw_close(&a);
    raw_close(&b);
    assert_true(rig_wait_connections(&h.rig, 0));
    rig_close(&h.rig);
}

static void test_bytes_one_by_one(void **state)
{
    struct house h;
    struct raw_client raw;
    struct wire_header header;
    const uint8_t *body;
    uint32_t finish;
    (void)state;
    house_open(&h, NULL, NULL);
    raw_open(&raw, h.path);
    raw_expect(&raw, WIRE_HELLO, &header, &body);
    raw_put_hello(&raw, MIB);
    raw_put_submit(&raw, 1, prompt, 3, 4, 1);
    for (size_t i = 0; i < raw.out.n; i++)
        raw_send_bytes(&raw, raw.out.data + i, 1);
    raw_expect(&raw, WIRE_HELLO, &header, &body);
    assert_int_equal(raw_read_stream(&raw, 1, &finish), 4);
    raw_close(&raw);
    rig_close(&h.rig);
}

static void test_disconnect_cancels(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    const uint8_t *body;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = 1000;
    fake.max_model_len = 2 * ENDLESS_TOKENS;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    for (uint64_t id = 1; id <= 20; id++)
        raw_put_submit(&raw, id, prompt, 3, ENDLESS_TOKENS, 2);
    raw_send(&raw);
    assert_true(rig_wait_live(&h.rig, 20));
    raw_expect(&raw, WIRE_ACCEPT, &header, &body);
    raw_close(&raw);
    assert_true(rig_wait_live(&h.rig, 0));
    assert_int_equal(fake_engine_n_cancelled(h.rig.engine), 20);
    assert_true(rig_wait_connections(&h.rig, 0));
    check_serving(&h);
    rig_close(&h.rig);
}

static void test_cancel_frames(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    uint32_t finish;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = 1000;
    fake.max_model_len = 2 * ENDLESS_TOKENS;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    raw_put_submit(&raw, 5, prompt, 3, ENDLESS_TOKENS, 2);
    wire_put_cancel(&raw.out, 99, -1); /* of no request */
    wire_put_cancel(&raw.out, 5, 1);
    wire_put_cancel(&raw.out, 5, 1000);
    raw_send(&raw);
    wire_put_cancel(&raw.out, 5, -1);
    raw_send(&raw);
    raw_read_stream(&raw, 5, &finish);
    assert_int_equal(finish, WIRE_FINISH_CANCELLED);
    wire_put_cancel(&raw.out, 5, -1); /* finished already */
    raw_put_submit(&raw, 5, prompt, 3, 4, 1);
    raw_send(&raw);
    assert_int_equal(raw_read_stream(&raw, 5, &finish), 4);
    raw_close(&raw);
    rig_close(&h.rig);
}

/* ---- invalid input ---- */

static void put_raw_frame(struct raw_client *raw, uint16_t type, uint64_t request, const void *body, uint32_t n)
{
    uint8_t head[16] = {
        (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24), (uint8_t)type, (uint8_t)(type >> 8), 0,
        0,          (uint8_t)request};
    buffer_append(&raw->out, head, 16);
    buffer_append(&raw->out, body, n);
}

enum bad_kind {
    BAD_NO_HELLO,
    BAD_VERSION,
    BAD_TEXT,
    BAD_CONFIG,
    BAD_GENERATION,
    BAD_CREDIT,
    BAD_LONG_HELLO,
    BAD_HELLO_BODY,
    BAD_TYPE,
    BAD_FLAGS,
    BAD_LENGTH,
    BAD_DIRECTION,
    BAD_SECOND_HELLO,
    BAD_SUBMIT,
    BAD_TWICE,
    BAD_AFTER_DRAIN,
    BAD_REQUEST_ID,
    BAD_KINDS,
};
static const struct {
    uint32_t status;
    const char *says;
} bad_answers[BAD_KINDS] = {
    [BAD_NO_HELLO] = {QUIRE_INVALID, "SUBMIT: before HELLO"},
    [BAD_VERSION] = {QUIRE_UNSUPPORTED, "HELLO: version: the engine speaks 1, the client 2"},
    [BAD_TEXT] = {QUIRE_INVALID, "HELLO: identity_text: tokenizer or chat template differ"},
    [BAD_CONFIG] = {QUIRE_INVALID, "HELLO: identity_config: config.json differ"},
    [BAD_GENERATION] = {QUIRE_INVALID, "HELLO: identity_generation: generation_config.json differ"},
    [BAD_CREDIT] = {QUIRE_INVALID, "HELLO: initial_credit: must be at least 65536, got 65535"},
    [BAD_LONG_HELLO] = {QUIRE_INVALID, "HELLO: length: at most 4096 here, got 4097"},
    [BAD_HELLO_BODY] = {QUIRE_INVALID, "HELLO: version: must be 4 bytes, got 1"},
    [BAD_TYPE] = {QUIRE_INVALID, "type: 77 is not a frame type"},
    [BAD_FLAGS] = {QUIRE_INVALID, "STATS: flags: must be zero"},
    [BAD_LENGTH] = {QUIRE_INVALID, "SUBMIT: length: at most 33554432"},
    [BAD_DIRECTION] = {QUIRE_INVALID, "TOKENS: a client does not send it here"},
    [BAD_SECOND_HELLO] = {QUIRE_INVALID, "HELLO: a client does not send it here"},
    [BAD_SUBMIT] = {QUIRE_INVALID, "SUBMIT: max_tokens: is missing"},
    [BAD_TWICE] = {QUIRE_INVALID, "SUBMIT: request id: 3 is live already"},
    [BAD_AFTER_DRAIN] = {QUIRE_INVALID, "SUBMIT: after DRAIN"},
    [BAD_REQUEST_ID] = {QUIRE_INVALID, "CANCEL: request id: must not be zero"},
};

static void put_bad_hello(struct raw_client *raw, enum bad_kind kind)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .initial_credit = WIRE_MIN_CREDIT};
    static uint8_t zeros[4097];
    memset(hello.identity_text.bytes, 0x11, 32);
    memset(hello.identity_config.bytes, 0x22, 32);
    if (kind == BAD_VERSION)
        hello.version = 2;
    if (kind == BAD_TEXT)
        hello.identity_text.bytes[3] = 0;
    if (kind == BAD_CONFIG)
        hello.identity_config.bytes[3] = 0;
    if (kind == BAD_GENERATION) /* the other kinds send no such digest, and are accepted */
        hello.identity_generation.bytes[3] = 1;
    if (kind == BAD_CREDIT)
        hello.initial_credit--;
    if (kind == BAD_NO_HELLO)
        raw_put_submit(raw, 1, prompt, 3, 4, 1);
    else if (kind == BAD_LONG_HELLO)
        put_raw_frame(raw, WIRE_HELLO, 0, zeros, 4097);
    else if (kind == BAD_HELLO_BODY)
        put_raw_frame(raw, WIRE_HELLO, 0, "\1\x80\0\0\1\0\0\0\1", 9);
    else
        wire_put_hello(&raw->out, &hello);
}

static void put_bad_frame(struct raw_client *raw, enum bad_kind kind)
{
    switch (kind) {
    case BAD_TYPE: put_raw_frame(raw, 77, 0, NULL, 0); break;
    case BAD_FLAGS:
        put_raw_frame(raw, WIRE_STATS, 0, NULL, 0);
        raw->out.data[raw->out.n - 10] = 1;
        break;
    case BAD_LENGTH:
        put_raw_frame(raw, WIRE_SUBMIT, 1, NULL, 0);
        raw->out.data[raw->out.n - 13] = 0x7f;
        break;
    case BAD_DIRECTION: put_raw_frame(raw, WIRE_TOKENS, 1, NULL, 0); break;
    case BAD_SECOND_HELLO: raw_put_hello(raw, MIB); break;
    case BAD_SUBMIT: put_raw_frame(raw, WIRE_SUBMIT, 1, "\1\x80\0\0\4\0\0\0\1\0\0\0", 12); break;
    case BAD_TWICE:
        raw_put_submit(raw, 3, prompt, 3, ENDLESS_TOKENS, 1);
        raw_put_submit(raw, 3, prompt, 3, ENDLESS_TOKENS, 1);
        break;
    case BAD_AFTER_DRAIN:
        raw_put_submit(raw, 3, prompt, 3, ENDLESS_TOKENS, 1);
        wire_put_drain(&raw->out);
        raw_put_submit(raw, 4, prompt, 3, 4000, 1);
        break;
    default: put_raw_frame(raw, WIRE_CANCEL, 0, NULL, 0); break;
    }
}

static void test_bad_clients(void **state)
{
    struct house h;
    struct raw_client good, raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    const uint8_t *body;
    uint32_t finish;
    (void)state;
    rig_default_options(&options, &fake);
    fake.interval_us = 200;
    fake.max_model_len = 2 * ENDLESS_TOKENS;
    house_open(&h, &options, &fake);
    raw_hello(&good, h.path, 64 * MIB);
    raw_put_submit(&good, 1, prompt, 3, 1500, 1);
    raw_send(&good);
    for (int kind = 0; kind < BAD_KINDS; kind++) {
        if (kind <= BAD_HELLO_BODY) {
            raw_open(&raw, h.path);
            raw_expect(&raw, WIRE_HELLO, &header, &body);
            put_bad_hello(&raw, (enum bad_kind)kind);
        } else {
            raw_hello(&raw, h.path, MIB);
            put_bad_frame(&raw, (enum bad_kind)kind);
        }
        raw_send(&raw);
        raw_expect_error(&raw, bad_answers[kind].status, bad_answers[kind].says);
        raw_close(&raw);
    }
    assert_int_equal(raw_read_stream(&good, 1, &finish), 1500); /* was not affected */
    raw_close(&good);
    assert_true(rig_wait_live(&h.rig, 0));
    assert_true(rig_wait_connections(&h.rig, 0));
    rig_close(&h.rig);
}

/* An unknown field that must be understood costs the request, not the connection. */
static void test_unknown_submit_field(void **state)
{
    struct house h;
    struct raw_client raw;
    struct wire_header header;
    struct wire_refuse refuse;
    struct quire_error err;
    const uint8_t *body;
    uint32_t finish;
    (void)state;
    house_open(&h, NULL, NULL);
    raw_hello(&raw, h.path, MIB);
    for (int must = 1; must >= 0; must--) {
        uint8_t field[9] = {0x40, must ? 0x80 : 0, 0, 0, 1, 0, 0, 0, 'x'};
        raw_put_submit(&raw, 1, prompt, 3, 4, 1);
        buffer_append(&raw.out, field, sizeof field);
        raw.out.data[0] += (uint8_t)sizeof field;
        raw_send(&raw);
        if (!must) {
            assert_int_equal(raw_read_stream(&raw, 1, &finish), 4);
            continue;
        }
        raw_expect(&raw, WIRE_REFUSE, &header, &body);
        assert_true(header.request == 1);
        assert_int_equal(wire_get_refuse(body, header.body_bytes, &refuse, &err), 0);
        assert_int_equal(refuse.status, QUIRE_UNSUPPORTED);
        assert_memory_equal(refuse.message, "SUBMIT: field 64 is unknown", 27);
    }
    wire_put_control(&raw.out, "make coffee");
    raw_send(&raw);
    raw_expect(&raw, WIRE_REFUSE, &header, &body);
    assert_true(header.request == 0);
    assert_int_equal(wire_get_refuse(body, header.body_bytes, &refuse, &err), 0);
    assert_int_equal(refuse.status, QUIRE_UNSUPPORTED);
    assert_non_null(memmem(refuse.message, refuse.n_message, "make coffee", 11));
    raw_put_submit(&raw, 1, prompt, 3, 4, 1);
    raw_send(&raw);
    assert_int_equal(raw_read_stream(&raw, 1, &finish), 4);
    raw_close(&raw);
    rig_close(&h.rig);
}

/* Replies to commands for the engine come when they are carried out, in the order of the commands. Replies that need
 * no engine do not wait for them. */
static void test_control_is_answered_when_it_is_done(void **state)
{
    struct house h;
    struct raw_client raw, gone;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    const uint8_t *body;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    raw_hello(&gone, h.path, MIB);
    wire_put_control(&gone.out, "unpin 1");
    wire_put_control(&raw.out, "make tea"); /* nothing is in progress yet */
    raw_send(&raw);
    raw_expect(&raw, WIRE_REFUSE, &header, &body);
    wire_put_control(&raw.out, "unpin 1");
    wire_put_control(&raw.out, "make coffee");
    wire_put_control(&raw.out, "set-policy fair");
    wire_put_stats_request(&raw.out, 0);
    raw_send(&gone);
    raw_send(&raw);
    static const uint16_t after[] = {WIRE_CONTROL, WIRE_REFUSE, WIRE_CONTROL};
    raw_expect(&raw, WIRE_STATS, &header, &body);
    raw_close(&gone);
    fake_engine_release(h.rig.engine);
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        raw_expect(&raw, after[i], &header, &body);
    wire_put_control(&raw.out, "unpin 1000"); /* not one of the engine's tenants */
    raw_send(&raw);
    raw_expect(&raw, WIRE_CONTROL, &header, &body);
    raw_close(&raw);
    check_serving(&h);
    rig_close(&h.rig);
}

static void test_control_is_bounded(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    for (int i = 0; i < 257; i++)
        wire_put_control(&raw.out, "unpin 1");
    raw_send(&raw);
    raw_expect_error(&raw, QUIRE_EXHAUSTED, "more than 256");
    raw_close(&raw);
    fake_engine_release(h.rig.engine);
    check_serving(&h);
    rig_close(&h.rig);
}

static void test_hello_time_limit(void **state)
{
    struct house h;
    struct raw_client silent, slow, good;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    options.hello_timeout_ms = 1000;
    house_open(&h, &options, &fake);
    raw_hello_in_time(&good, h.path, MIB);
    raw_open(&silent, h.path);
    raw_open(&slow, h.path);
    raw_send_bytes(&slow, "\x0c\0\0", 3);
    raw_expect_error(&silent, QUIRE_INVALID, "no HELLO within 1000 ms");
    raw_expect_error(&slow, QUIRE_INVALID, "no HELLO within 1000 ms");
    raw_close(&silent);
    raw_close(&slow);
    check_request(&good);
    raw_close(&good);
    rig_close(&h.rig);
}

/* A peer that received its ERROR but keeps the connection open is closed after a second. */
static void test_linger_ends(void **state)
{
    struct house h;
    struct raw_client raw;
    (void)state;
    house_open(&h, NULL, NULL);
    raw_open(&raw, h.path);
    raw_send_bytes(&raw, "this is no frame", 16);
    assert_true(rig_wait_connections(&h.rig, 0));
    raw_close(&raw);
    rig_close(&h.rig);
}

static void test_garbage(void **state)
{
    struct house h;
    (void)state;
    house_open(&h, NULL, NULL);
    srand(1);
    for (int i = 0; i < 200; i++) {
        struct raw_client raw;
        uint8_t bytes[600];
        size_t n = (size_t)rand() % sizeof bytes;
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)rand();
        if (i % 2)
            raw_hello(&raw, h.path, MIB);
        else
            raw_open(&raw, h.path);
        if (i % 4 > 1) { /* a good header, so that the body is checked */
            memset(bytes, 0, 16);
            bytes[0] = (uint8_t)(n < 16 ? 0 : n - 16);
            bytes[1] = (uint8_t)((n < 16 ? 0 : n - 16) >> 8);
            bytes[4] = (uint8_t)(1 + rand() % 13);
            bytes[8] = bytes[4] >= 2 && bytes[4] <= 8;
            n = n < 16 ? 16 : n;
        }
        raw_send_bytes(&raw, bytes, n);
        raw_close(&raw);
    }
    check_serving(&h);
    assert_true(rig_wait_connections(&h.rig, 0));
    rig_close(&h.rig);
}

/* ---- credit ---- */

/* Reads until more than `least` bytes have arrived since n_read was cleared, however slowly they come, and then until
 * nothing arrives for a while. Returns their number. */
static uint64_t read_all_there_is(struct raw_client *raw, uint64_t least)
{
    struct wire_header header;
    const uint8_t *body;
    while (raw_next(raw, raw->n_read > least ? 300 : RAW_PATIENCE_MS, &header, &body) == 1) {
    }
    return raw->n_read;
}

static void test_credit_is_obeyed(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.tokens_per_step = 16;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, WIRE_MIN_CREDIT);
    for (uint64_t id = 1; id <= 10; id++)
        raw_put_submit(&raw, id, prompt, 3, 2000, 1);
    raw_send(&raw);
    assert_true(rig_wait_all_over(&h.rig, 10 * 2000)); /* the engine does not wait for us */
    uint64_t granted = WIRE_MIN_CREDIT;
    uint64_t n = read_all_there_is(&raw, granted - 4096);
    assert_true(n <= granted && n > granted - 4096);
    static const uint64_t grants[] = {1000, 0, 1, 5000, 20000};
    for (size_t i = 0; i < sizeof grants / sizeof grants[0]; i++) {
        wire_put_credit(&raw.out, grants[i]);
        raw_send(&raw);
        granted += grants[i];
        n = read_all_there_is(&raw, granted - 4096);
        assert_true(n <= granted && n > granted - 4096);
    }
    wire_put_credit(&raw.out, UINT64_MAX);
    wire_put_credit(&raw.out, UINT64_MAX);
    raw_send(&raw);
    n = read_all_there_is(&raw, 10 * 2000 * 8);
    assert_true(n > 10 * 2000 * 8);
    raw_close(&raw);
    rig_close(&h.rig);
}

/* Two clients that accept nothing, one without credit and one that does not read; a third one is served meanwhile. */
static void test_slow_clients_are_closed(void **state)
{
    struct house h;
    struct raw_client starved, deaf;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    const uint8_t *body;
    (void)state;
    rig_default_options(&options, &fake);
    options.max_queued_bytes = 300000;
    fake.max_model_len = UINT32_MAX;
    fake.tokens_per_step = 64;
    house_open(&h, &options, &fake);
    raw_hello(&starved, h.path, WIRE_MIN_CREDIT);
    raw_hello(&deaf, h.path, UINT64_MAX);
    raw_put_submit(&starved, 1, prompt, 3, UINT32_MAX, 1);
    raw_put_submit(&deaf, 1, prompt, 3, UINT32_MAX, 1);
    raw_send(&starved);
    raw_send(&deaf);
    check_serving(&h);
    assert_true(rig_wait_live(&h.rig, 0)); /* both are cancelled */
    assert_int_equal(fake_engine_n_cancelled(h.rig.engine), 2);
    raw_expect_error(&starved, QUIRE_EXHAUSTED, "too slow");
    /* The client that does not read finds the content of the socket buffers, not half a frame more, and the end. */
    uint8_t bytes[4096];
    while (recv(deaf.fd, bytes, sizeof bytes, 0) > 0) {
    }
    (void)header;
    (void)body;
    raw_close(&starved);
    raw_close(&deaf);
    assert_true(rig_wait_connections(&h.rig, 0));
    check_serving(&h);
    rig_close(&h.rig);
}

/* ---- drain ---- */

static void test_drain(void **state)
{
    struct house h;
    struct raw_client raw, late;
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    const uint8_t *body;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    raw_put_submit(&raw, 1, prompt, 3, 4, 1);
    raw_send(&raw);
    assert_true(rig_wait_live(&h.rig, 1));
    raw_expect(&raw, WIRE_ACCEPT, &header, &body);
    rig_drain(&h.rig);
    raw_expect(&raw, WIRE_DRAIN, &header, &body);
    raw_put_submit(&raw, 2, prompt, 3, 4, 1);
    raw_send(&raw);
    raw_expect(&raw, WIRE_REFUSE, &header, &body);
    assert_true(header.request == 2);
    raw_hello(&late, h.path, MIB); /* a new client receives it at once */
    raw_expect(&late, WIRE_DRAIN, &header, &body);
    assert_int_equal(atomic_load(&h.rig.idle_calls), 0);
    fake_engine_release(h.rig.engine);
    do
        assert_int_equal(raw_next(&raw, RAW_PATIENCE_MS, &header, &body), 1);
    while (header.type != WIRE_DONE);
    assert_int_equal(raw_next(&raw, RAW_PATIENCE_MS, &header, &body), -1);
    assert_int_equal(raw_next(&late, RAW_PATIENCE_MS, &header, &body), -1);
    raw_close(&raw);
    assert_true(rig_wait_idle(&h.rig)); /* also with a client that does not close */
    raw_close(&late);
    rig_close(&h.rig);
}

/* The daemon waits for the requests that a closed connection left in the engine, though no client will receive them. */
static void test_drain_with_orphan(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.hold = true;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, MIB);
    raw_put_submit(&raw, 1, prompt, 3, 4, 1);
    raw_send(&raw);
    assert_true(rig_wait_live(&h.rig, 1));
    raw_close(&raw);
    assert_true(rig_wait_connections(&h.rig, 0));
    rig_drain(&h.rig);
    assert_int_equal(atomic_load(&h.rig.idle_calls), 0);
    fake_engine_release(h.rig.engine);
    assert_true(rig_wait_idle(&h.rig));
    rig_close(&h.rig);
}

/* A client that grants no credit delays the end by at most the linger time. */
static void test_drain_with_silent_client(void **state)
{
    struct house h;
    struct raw_client raw;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    fake.tokens_per_step = 64;
    house_open(&h, &options, &fake);
    raw_hello(&raw, h.path, WIRE_MIN_CREDIT);
    for (uint64_t id = 1; id <= 10; id++)
        raw_put_submit(&raw, id, prompt, 3, 4000, 1);
    raw_send(&raw);
    assert_true(rig_wait_all_over(&h.rig, 10 * 4000));
    int64_t begun = rig_now_ms();
    rig_drain(&h.rig);
    assert_true(rig_wait_idle(&h.rig));
    assert_true(rig_now_ms() - begun >= 4000);
    raw_close(&raw);
    rig_close(&h.rig);
}

/* ---- limits ---- */

static void test_limits(void **state)
{
    struct house h;
    struct raw_client raw[4];
    struct fake_engine_options fake;
    struct daemon_options options;
    struct wire_header header;
    struct wire_refuse refuse;
    struct quire_error err;
    const uint8_t *body;
    (void)state;
    rig_default_options(&options, &fake);
    options.max_connections = 3;
    options.max_requests = 2;
    fake.hold = true;
    house_open(&h, &options, &fake);
    for (int i = 0; i < 3; i++)
        raw_hello(&raw[i], h.path, MIB);
    raw_open(&raw[3], h.path);
    raw_expect_error(&raw[3], QUIRE_EXHAUSTED, "too many connections");
    raw_close(&raw[3]);
    for (uint64_t id = 1; id <= 3; id++)
        raw_put_submit(&raw[0], id, prompt, 3, 4, 1);
    raw_send(&raw[0]);
    raw_expect(&raw[0], WIRE_ACCEPT, &header, &body);
    raw_expect(&raw[0], WIRE_ACCEPT, &header, &body);
    raw_expect(&raw[0], WIRE_REFUSE, &header, &body);
    assert_true(header.request == 3);
    assert_int_equal(wire_get_refuse(body, header.body_bytes, &refuse, &err), 0);
    assert_int_equal(refuse.status, QUIRE_EXHAUSTED);
    assert_true(refuse.retry_after_ms > 0);
    for (int i = 0; i < 3; i++)
        raw_close(&raw[i]);
    fake_engine_release(h.rig.engine);
    assert_true(rig_wait_connections(&h.rig, 0));
    check_serving(&h);
    rig_close(&h.rig);
}

static void test_thousand_connects(void **state)
{
    struct house h;
    struct fake_engine_options fake;
    struct daemon_options options;
    (void)state;
    rig_default_options(&options, &fake);
    options.max_connections = 2000;
    house_open(&h, &options, &fake);
    for (int i = 0; i < 1000; i++) {
        struct raw_client raw;
        raw_open(&raw, h.path);
        if (i % 4 == 1) {
            raw_put_hello(&raw, MIB);
        } else if (i % 4 == 2) {
            raw_put_hello(&raw, MIB);
            raw_put_submit(&raw, 1, prompt, 3, 4000, 2);
        } else if (i % 4 == 3) {
            raw_send_bytes(&raw, "junk", 4);
        }
        raw_send(&raw);
        raw_close(&raw);
    }
    assert_true(rig_wait_connections(&h.rig, 0));
    assert_true(rig_wait_live(&h.rig, 0));
    check_serving(&h);
    rig_close(&h.rig);
}

/* ---- many at once ---- */

struct worker {
    struct house *house;
    pthread_t thread;
    unsigned seed;
    uint32_t n_done;
};

/* Short requests; some are cancelled, and some are left by a closed connection. */
static void *work(void *context)
{
    struct worker *w = context;
    for (int round = 0; round < 6; round++) {
        struct raw_client raw;
        uint32_t n_over = 0;
        struct wire_header header;
        const uint8_t *body;
        raw_hello(&raw, w->house->path, 64 * MIB);
        for (uint64_t id = 1; id <= 60; id++) {
            raw_put_submit(&raw, id, prompt, 3, 1 + (uint32_t)rand_r(&w->seed) % 30, 1);
            if (rand_r(&w->seed) % 4 == 0)
                wire_put_cancel(&raw.out, id, -1);
            if (rand_r(&w->seed) % 8 == 0)
                wire_put_stats_request(&raw.out, 0);
            raw_send(&raw);
        }
        while (n_over < (round % 3 == 2 ? 20 : 60)) {
            assert_int_equal(raw_next(&raw, RAW_PATIENCE_MS, &header, &body), 1);
            n_over += header.type == WIRE_DONE || header.type == WIRE_REFUSE;
        }
        w->n_done += n_over;
        raw_close(&raw);
    }
    return NULL;
}

static void test_workers(void **state)
{
    enum { N = 4 };
    struct house h;
    struct worker workers[N];
    (void)state;
    house_open(&h, NULL, NULL);
    for (unsigned i = 0; i < N; i++) {
        workers[i] = (struct worker){.house = &h, .seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].n_done >= 4 * 60 + 2 * 20);
    }
    assert_true(rig_wait_live(&h.rig, 0));
    assert_true(rig_wait_connections(&h.rig, 0));
    rig_close(&h.rig);
}

/* ---- socket files ---- */

static void test_socket_file(void **state)
{
    struct rig rig;
    struct quire_error err;
    struct stat st;
    char path[96], address[128];
    (void)state;
    rig_open(&rig, NULL, NULL);
    rig_path(&rig, "s", path, sizeof path);
    snprintf(address, sizeof address, "unix:%s", path);

    /* A file that is not a socket is never removed. */
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(daemon_listen(rig.d, address, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "is not a socket"));
    assert_int_equal(unlink(path), 0);

    mode_t old = umask(0);
    assert_int_equal(daemon_listen(rig.d, address, NULL, &err), QUIRE_OK);
    umask(old);
    assert_string_equal(daemon_address(rig.d, 0), address);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* A process listens there: rejected. */
    assert_int_equal(daemon_listen(rig.d, address, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "somebody listens there already"));
    for (int i = 1; i < DAEMON_MAX_LISTENERS; i++) {
        char more[140];
        snprintf(more, sizeof more, "%s%d", address, i);
        assert_int_equal(daemon_listen(rig.d, more, NULL, &err), QUIRE_OK);
    }
    assert_int_equal(daemon_listen(rig.d, "unix:/tmp/x", NULL, &err), QUIRE_EXHAUSTED);
    engine_close(rig.engine);
    daemon_close(rig.d);
    assert_int_equal(lstat(path, &st), -1);

    /* Left by a process that has exited: replaced. */
    struct daemon_options options;
    struct fake_engine_options fake;
    rig_default_options(&options, &fake);
    assert_int_equal(daemon_create(rig.base, &options, &rig.d, &err), 0);
    assert_int_equal(daemon_listen(rig.d, address, NULL, &err), QUIRE_INTERNAL);
    assert_int_equal(fake_engine_open(&fake, daemon_sink, rig.d, &rig.engine, &err), 0);
    daemon_set_engine(rig.d, rig.engine);
    struct raw_client raw;
    memset(&raw, 0, sizeof raw);
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    struct wire_address where[WIRE_MAX_ADDRESSES];
    size_t n;
    assert_int_equal(wire_address_parse(address, where, &n, &err), 0);
    assert_int_equal(bind(left, (struct sockaddr *)&where[0].socket, where[0].n_socket), 0);
    close(left);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(daemon_listen(rig.d, address, NULL, &err), QUIRE_OK);
    /* Replaced by another file meanwhile: must not be removed. */
    assert_int_equal(unlink(path), 0);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    engine_close(rig.engine);
    daemon_close(rig.d);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(daemon_create(rig.base, &options, &rig.d, &err), 0);
    assert_int_equal(fake_engine_open(&fake, daemon_sink, rig.d, &rig.engine, &err), 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_clients),
        cmocka_unit_test(test_bytes_one_by_one),
        cmocka_unit_test(test_disconnect_cancels),
        cmocka_unit_test(test_cancel_frames),
        cmocka_unit_test(test_bad_clients),
        cmocka_unit_test(test_unknown_submit_field),
        cmocka_unit_test(test_control_is_answered_when_it_is_done),
        cmocka_unit_test(test_control_is_bounded),
        cmocka_unit_test(test_hello_time_limit),
        cmocka_unit_test(test_linger_ends),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_credit_is_obeyed),
        cmocka_unit_test(test_slow_clients_are_closed),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_with_orphan),
        cmocka_unit_test(test_drain_with_silent_client),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_thousand_connects),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_socket_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
