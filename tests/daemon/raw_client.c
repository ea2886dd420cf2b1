#include "tests/daemon/raw_client.h"

#include "base/clock.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void raw_open(struct raw_client *raw, const char *unix_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(raw, 0, sizeof *raw);
    assert_true(strlen(unix_path) < sizeof address.sun_path);
    memcpy(address.sun_path, unix_path, strlen(unix_path));
    raw->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(raw->fd >= 0);
    assert_int_equal(connect(raw->fd, (struct sockaddr *)&address, sizeof address), 0);
}

void raw_close(struct raw_client *raw)
{
    close(raw->fd);
    frame_reader_free(&raw->in);
    buffer_free(&raw->out);
}

void raw_send_bytes(struct raw_client *raw, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(raw->fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return;
        assert_true(sent > 0);
        at += sent;
        n -= (size_t)sent;
    }
}

void raw_send(struct raw_client *raw)
{
    assert_false(raw->out.failed);
    raw_send_bytes(raw, raw->out.data, raw->out.n);
    raw->out.n = 0;
}

int raw_next(struct raw_client *raw, int ms, struct wire_header *header, const uint8_t **body)
{
    struct quire_error err;
    for (;;) {
        int found = frame_reader_next(&raw->in, WIRE_MAX_EVENT_BODY, header, body, &err);
        assert_true(found >= 0);
        if (found) {
            raw->n_read += WIRE_HEADER_BYTES + header->body_bytes;
            return 1;
        }
        struct pollfd p = {.fd = raw->fd, .events = POLLIN};
        int ready = poll(&p, 1, ms);
        assert_true(ready >= 0);
        if (ready == 0)
            return 0;
        uint8_t *space = frame_reader_space(&raw->in, 65536);
        assert_non_null(space);
        ssize_t n = recv(raw->fd, space, 65536, 0);
        if (n <= 0) {
            assert_int_equal(raw->in.buffer.n, raw->in.start); /* never within a frame */
            return -1;
        }
        frame_reader_added(&raw->in, (size_t)n);
    }
}

void raw_expect(struct raw_client *raw, uint16_t type, struct wire_header *header, const uint8_t **body)
{
    int found = raw_next(raw, RAW_PATIENCE_MS, header, body);
    if (found != 1)
        fail_msg("%s instead of %s", found ? "the end" : "nothing", wire_type_name(type));
    if (header->type != type)
        fail_msg("%s instead of %s", wire_type_name(header->type), wire_type_name(type));
}

void raw_expect_error(struct raw_client *raw, uint32_t status, const char *says)
{
    struct wire_header header;
    const uint8_t *body;
    struct quire_error err;
    uint32_t code;
    const char *message;
    size_t n_message;
    char text[WIRE_MAX_TEXT + 1];
    do {
        if (raw_next(raw, RAW_PATIENCE_MS, &header, &body) != 1)
            fail_msg("no ERROR that says '%s'", says);
    } while (header.type != WIRE_ERROR);
    assert_int_equal(wire_get_error(body, header.body_bytes, &code, &message, &n_message, &err), 0);
    snprintf(text, sizeof text, "%.*s", (int)n_message, message);
    if (!strstr(text, says))
        fail_msg("'%s' does not say '%s'", text, says);
    assert_int_equal(code, status);
    assert_int_equal(raw_next(raw, RAW_PATIENCE_MS, &header, &body), -1);
}

void raw_put_hello(struct raw_client *raw, uint64_t credit)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .initial_credit = credit};
    memset(hello.identity_text.bytes, 0x11, 32);
    memset(hello.identity_config.bytes, 0x22, 32);
    assert_int_equal(wire_put_hello(&raw->out, &hello), QUIRE_OK);
}

void raw_hello(struct raw_client *raw, const char *unix_path, uint64_t credit)
{
    struct wire_header header;
    const uint8_t *body;
    raw_open(raw, unix_path);
    raw_expect(raw, WIRE_HELLO, &header, &body);
    raw_put_hello(raw, credit);
    raw_send(raw);
    raw_expect(raw, WIRE_HELLO, &header, &body);
    raw->n_read = 0;
}

void raw_hello_in_time(struct raw_client *raw, const char *unix_path, uint64_t credit)
{
    struct wire_header header;
    const uint8_t *body;
    const uint64_t until = quire_now_ms() + RAW_PATIENCE_MS;
    for (;;) {
        raw_open(raw, unix_path);
        raw_expect(raw, WIRE_HELLO, &header, &body);
        raw_put_hello(raw, credit);
        raw_send(raw);
        assert_int_equal(raw_next(raw, RAW_PATIENCE_MS, &header, &body), 1);
        if (header.type == WIRE_HELLO)
            break;
        assert_int_equal(header.type, WIRE_ERROR);
        assert_true(quire_now_ms() < until);
        raw_close(raw);
    }
    raw->n_read = 0;
}

void raw_put_submit(struct raw_client *raw, uint64_t request, const uint32_t *prompt, uint32_t n_prompt,
                    uint32_t max_tokens, uint32_t n)
{
    struct request_spec submit;
    request_spec_default(&submit);
    submit.prompt = prompt;
    submit.n_prompt = n_prompt;
    submit.max_tokens = max_tokens;
    submit.n = n;
    submit.ignore_eos = max_tokens > n_prompt + 1;
    assert_int_equal(wire_put_submit(&raw->out, request, &submit), QUIRE_OK);
}

uint32_t raw_read_stream(struct raw_client *raw, uint64_t request, uint32_t *finish)
{
    struct wire_header header;
    const uint8_t *body;
    struct quire_error err;
    struct wire_token token;
    struct wire_done done = {0};
    uint32_t n_tokens = 0;
    raw_expect(raw, WIRE_ACCEPT, &header, &body);
    assert_true(header.request == request);
    while (!done.last) {
        assert_int_equal(raw_next(raw, RAW_PATIENCE_MS, &header, &body), 1);
        assert_true(header.request == request);
        if (header.type == WIRE_TOKENS) {
            size_t cursor = 0;
            while (wire_next_token(body, header.body_bytes, &cursor, &token, &err) == 1)
                n_tokens++;
        } else {
            assert_int_equal(header.type, WIRE_DONE);
            assert_int_equal(wire_get_done(body, header.body_bytes, &done, &err), 0);
        }
    }
    *finish = done.finish;
    return n_tokens;
}
