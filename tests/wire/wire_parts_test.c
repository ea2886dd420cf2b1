/* The parts other than frames: cutting a stream, the id map, keys, addresses, buffers. */
#include "server/wire/address.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame_reader.h"
#include "server/wire/key.h"
#include "tests/wire/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- frame_reader ---- */

static void feed(struct frame_reader *r, const void *bytes, size_t n)
{
    uint8_t *space = frame_reader_space(r, n);
    assert_non_null(space);
    memcpy(space, bytes, n);
    frame_reader_added(r, n);
}

/* All sample frames in one stream, in pieces of every small size: the same frames come out. */
static void test_reader_pieces(void **state)
{
    struct buffer stream = {0};
    size_t ends[SAMPLE_FRAMES];
    struct quire_error err;
    (void)state;
    for (size_t i = 0; i < SAMPLE_FRAMES; i++) {
        sample_frame(i, &stream);
        ends[i] = stream.n;
    }
    for (size_t piece = 1; piece < 200; piece += piece < 20 ? 1 : 13) {
        struct frame_reader r = {0};
        struct wire_header header;
        const uint8_t *body;
        size_t n_frames = 0, at = 0;
        int found = 0;
        while (at < stream.n) {
            size_t n = stream.n - at < piece ? stream.n - at : piece;
            feed(&r, stream.data + at, n);
            at += n;
            while ((found = frame_reader_next(&r, WIRE_MAX_BODY, &header, &body, &err)) == 1) {
                size_t begin = n_frames ? ends[n_frames - 1] : 0;
                assert_true(n_frames < SAMPLE_FRAMES);
                assert_int_equal(header.body_bytes, ends[n_frames] - begin - WIRE_HEADER_BYTES);
                assert_memory_equal(body, stream.data + begin + WIRE_HEADER_BYTES, header.body_bytes);
                assert_true(at >= ends[n_frames]); /* not before its last byte arrived */
                n_frames++;
            }
            assert_int_equal(found, 0);
        }
        assert_int_equal(n_frames, SAMPLE_FRAMES);
        frame_reader_free(&r);
    }
    buffer_free(&stream);
}

static void test_reader_limits(void **state)
{
    static const uint8_t head[16] = {0x01, 0x10, 0, 0, WIRE_SUBMIT, 0, 0, 0, 1};
    struct frame_reader r = {0};
    struct wire_header header;
    struct quire_error err;
    const uint8_t *body;
    (void)state;
    feed(&r, head, 15);
    assert_int_equal(frame_reader_next(&r, 4096, &header, &body, &err), 0);
    feed(&r, head + 15, 1);
    assert_int_equal(frame_reader_next(&r, 4096, &header, &body, &err), -QUIRE_INVALID);
    assert_int_equal(frame_reader_next(&r, 4097, &header, &body, &err), 0);
    /* A header's length allocates no memory before the bytes arrive; the memory of a large frame is freed. */
    assert_true(r.buffer.capacity < 4097);
    frame_reader_free(&r);
    uint8_t *large = calloc(1, 4 << 20);
    assert_non_null(large);
    memcpy(large, head, 16);
    le_store_u32(large, (4 << 20) - 16);
    feed(&r, large, 4 << 20);
    assert_int_equal(frame_reader_next(&r, WIRE_MAX_BODY, &header, &body, &err), 1);
    assert_non_null(frame_reader_space(&r, 100));
    assert_true(r.buffer.capacity < 4096);
    free(large);
    frame_reader_free(&r);
}

/* ---- key ---- */

static void from_hex(const char *hex, uint8_t out[32])
{
    for (int i = 0; i < 32; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
}

/* The numbers of protocol.md, which Python's hashlib also computes. */
static void test_key_proof(void **state)
{
    uint8_t engine[32], front[32], want[32];
    (void)state;
    for (uint8_t i = 0; i < 32; i++) {
        engine[i] = i;
        front[i] = (uint8_t)(0x80 + i);
    }
    struct key256 key = quire_keyed_hash(NULL, "correct horse battery staple", 28);
    from_hex("1cd1ac1f211efb5617308d74d14cf5de87ba9fbf7df646113223c1e0fa26d7e9", want);
    assert_memory_equal(key.bytes, want, 32);
    struct key256 a = wire_key_proof(&key, WIRE_KEY_FRONT, engine, front);
    from_hex("d2a3f828b88084998f086a5cdd10975f15de09f06ccb33538851441ec3ec6e4e", want);
    assert_memory_equal(a.bytes, want, 32);
    struct key256 b = wire_key_proof(&key, WIRE_KEY_ENGINE, engine, front);
    from_hex("5a680b8e72081a85868cb659ac6ec7e452b4420064df71400b8f4a1cf35180fb", want);
    assert_memory_equal(b.bytes, want, 32);
}

/* ---- address ---- */

static void test_addresses(void **state)
{
    struct wire_address a[WIRE_MAX_ADDRESSES];
    struct quire_error err;
    char text[160];
    size_t n;
    (void)state;
    static const char *good[] = {"unix:/run/quire.sock", "unix:relative", "tcp:127.0.0.1:8001", "tcp:[::1]:0"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(wire_address_parse(good[i], a, &n, &err), QUIRE_OK);
        assert_int_equal(n, 1);
        wire_address_text(&a[0], text, sizeof text);
        assert_string_equal(text, good[i]);
        assert_int_equal(a[0].is_unix, i < 2);
    }
    static const char *bad[] = {"",         "unix:",    "tcp:",     "tcp:1",   "tcp::1", "tcp:::1:1", "tcp:h:70000",
                                "tcp:h:-1", "tcp:h: 1", "tcp:h:1x", "udp:h:1", "/path"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(wire_address_parse(bad[i], a, &n, &err), QUIRE_INVALID);
    /* 107 bytes of path fit, 108 do not. */
    memset(text, 'p', sizeof text);
    memcpy(text, "unix:", 5);
    text[5 + 107] = '\0';
    assert_int_equal(wire_address_parse(text, a, &n, &err), QUIRE_OK);
    text[5 + 107] = 'p';
    text[5 + 108] = '\0';
    assert_int_equal(wire_address_parse(text, a, &n, &err), QUIRE_INVALID);
}

/* ---- buffers ---- */

static void test_buffer(void **state)
{
    struct buffer b = {0};
    (void)state;
    assert_int_equal(buffer_append(&b, NULL, 0), QUIRE_OK);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buffer_append(&b, "0123456789", 10), QUIRE_OK);
    assert_int_equal(b.n, 100000);
    assert_memory_equal(b.data + 99990, "0123456789", 10);
    /* An impossible size is a failed allocation, not an overflow, and the buffer stays failed. */
    assert_null(buffer_reserve(&b, SIZE_MAX - 5));
    assert_true(b.failed);
    assert_int_equal(buffer_append(&b, "x", 1), QUIRE_NO_MEMORY);
    assert_int_equal(wire_put_accept(&b, 1, 0), QUIRE_NO_MEMORY);
    assert_int_equal(wire_put_credit(&b, 1), QUIRE_NO_MEMORY);
    struct wire_token token = {0};
    assert_int_equal(wire_put_tokens(&b, 1, &token, 1), QUIRE_NO_MEMORY);
    buffer_free(&b);
    assert_int_equal(wire_put_accept(&b, 1, 0), QUIRE_OK);
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_pieces), cmocka_unit_test(test_reader_limits), cmocka_unit_test(test_key_proof),
        cmocka_unit_test(test_addresses),     cmocka_unit_test(test_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
