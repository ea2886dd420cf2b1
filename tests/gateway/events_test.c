/* Splitting a stream into events, and reading them. */
#include "base/hash.h"
#include "server/gateway/relay/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

/* ---- splitting ------------------------------------------------------------------------------ */

struct heard {
    struct buffer text; /* "name|data;" of each event */
    size_t n, stop_after;
};

static bool hear(void *context, const char *data, size_t n, const char *name)
{
    struct heard *h = context;
    buffer_append(&h->text, name, strlen(name));
    buffer_append(&h->text, "|", 1);
    buffer_append(&h->text, data, n);
    buffer_append(&h->text, ";", 1);
    return ++h->n != h->stop_after;
}

/* The bytes arrive in pieces of `step`. */
static void check_split(const char *bytes, size_t n, size_t step, const char *expected)
{
    struct events_splitter s = {0};
    struct heard h = {0};
    for (size_t at = 0; at < n; at += step) {
        const size_t len = n - at < step ? n - at : step;
        char *piece = malloc(len); /* so that a pointer kept into it is found */
        assert_non_null(piece);
        memcpy(piece, bytes + at, len);
        assert_int_equal(events_push(&s, piece, len, hear, &h, NULL), QUIRE_OK);
        free(piece);
    }
    assert_string_equal(buffer_text(&h.text), expected);
    events_free(&s);
    buffer_free(&h.text);
}

static void events_are_split_at_any_byte(void **state)
{
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        {"data: a\n\ndata: b\n\n", "|a;|b;"},
        {"data: a\r\n\r\ndata: b\r\n\r\n", "|a;|b;"},
        {"data: a\r\rdata: b\r\r", "|a;|b;"},
        {"event: x\ndata: a\n\ndata: b\n\n", "x|a;|b;"},
        {"data:a\nevent:y\n\n", "y|a;"},
        {"data: a\ndata: b\ndata:\ndata: c\n\n", "|a\nb\n\nc;"},
        {": ping\n\ndata: a\n: comment\n\n", "|a;"},
        {"id: 7\nretry: 10\ndata: a\n\n", "|a;"},
        {"data\n\n", "|;"},
        {"data:  two blanks\n\n", "| two blanks;"},
        {"database: a\nevents: b\n\n", ""},
        {"event: only\n\ndata: a\n\n", "|a;"},
        {"\xef\xbb\xbf"
         "data: a\n\n",
         "|a;"},
        {"data: \xf0\x9f\x99\x82\n\n", "|\xf0\x9f\x99\x82;"},
        {"data: cut off", ""},
        {"data: a\n\n\n\n\ndata: [DONE]\n\n", "|a;|[DONE];"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= strlen(cases[i].bytes); step++)
            check_split(cases[i].bytes, strlen(cases[i].bytes), step, cases[i].expected);
}

static void an_event_is_bounded(void **state)
{
    static char line[1 << 16];
    struct quire_error err = {0};
    (void)state;
    memset(line, 'x', sizeof line);
    for (int in_lines = 0; in_lines < 2; in_lines++) {
        struct events_splitter s = {0};
        struct heard h = {0};
        size_t n = 0;
        int status = events_push(&s, "data: ", 6, hear, &h, &err);
        for (; status == QUIRE_OK && n < 2 * EVENTS_MAX_BYTES; n += sizeof line) {
            status = events_push(&s, line, sizeof line, hear, &h, &err);
            if (status == QUIRE_OK && in_lines)
                status = events_push(&s, "\ndata: ", 7, hear, &h, &err);
        }
        assert_int_equal(status, QUIRE_INVALID);
        assert_in_range(n, EVENTS_MAX_BYTES - sizeof line, EVENTS_MAX_BYTES + sizeof line);
        assert_string_equal(err.text, "the server sent an event of more than 4194304 bytes");
        events_free(&s);
        buffer_free(&h.text);
    }
}

static void a_receiver_may_stop_and_free(void **state)
{
    static const char bytes[] = "data: a\n\ndata: b\n\ndata: c\n\n";
    struct heard h = {.stop_after = 2};
    struct events_splitter s = {0};
    (void)state;
    assert_int_equal(events_push(&s, bytes, sizeof bytes - 1, hear, &h, NULL), QUIRE_OK);
    assert_string_equal(buffer_text(&h.text), "|a;|b;");
    events_free(&s);
    buffer_free(&h.text);
}

static void a_written_event_reads_the_same(void **state)
{
    static const struct {
        const char *data, *expected;
    } cases[] = {{"", "n|;"},       {"a", "n|a;"},       {"a\nb", "n|a\nb;"},
                 {"a\n", "n|a\n;"}, {"\n\n", "n|\n\n;"}, {"a\r\nb\rc", "n|a\nb\nc;"},
                 {" x", "n| x;"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer o = {0};
        events_put(&o, "n", cases[i].data, strlen(cases[i].data));
        check_split(o.data, o.n, o.n, cases[i].expected);
        buffer_free(&o);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static struct events_facts read_text(const char *text, struct events_usage *usage)
{
    struct events_facts f;
    events_read(text, strlen(text), &f, usage);
    return f;
}

static void first_tokens_are_found(void **state)
{
    static const struct {
        const char *event;
        bool has_token, has_finish;
    } cases[] = {
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", false, false},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}]}", false, false},
        {"{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", true, false},
        {"{\"choices\":[{\"delta\":{}},{\"index\":1,\"delta\":{\"content\":\"a\"}}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}", true, false},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[]}}]}", false, false},
        {"{\"choices\":[{\"text\":\"a\"}]}", true, false},
        {"{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", false, true},
        {"{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}", true, true},
        {"{\"choices\":[{\"delta\":{\"content\":\"\\u0000\\ud800\"}}]}", true, false},
        {"{\"choices\":[{\"text\":\"\",\"text\":\"a\"}],\"x\":NaN}", true, false},
        {"{\"type\":\"message_start\",\"message\":{\"content\":[]}}", false, false},
        {"{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}", true, false},
        {"{\"type\":\"message_stop\"}", false, true},
        {"{\"type\":\"response.created\"}", false, false},
        {"{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}", true, false},
        {"{\"type\":\"response.completed\",\"response\":{}}", false, true},
        {"{\"choices\":null}", false, false},
        {"{\"choices\":{\"a\":1}}", false, false},
        {"{\"choices\":[1,null,[]]}", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct events_facts f = read_text(cases[i].event, NULL);
        assert_true(f.is_json);
        if (f.has_token != cases[i].has_token || f.has_finish != cases[i].has_finish || f.is_error)
            fail_msg("%s", cases[i].event);
    }
}

static void usage_is_read(void **state)
{
    static const char chat[] = "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,"
                               "\"prompt_tokens_details\":{\"cached_tokens\":3}}}";
    struct events_usage u = {0};
    (void)state;
    struct events_facts f = read_text(chat, &u);
    assert_true(f.has_usage && f.is_usage_only && u.is_set);
    assert_int_equal(u.input, 9);
    assert_int_equal(u.cached_input, 3);
    assert_int_equal(u.output, 4);
    assert_memory_equal(chat + f.usage_at, "{\"prompt_tokens\":9", 18);
    assert_int_equal(chat[f.usage_at + f.n_usage], '}');

    f = read_text("{\"choices\":[{\"delta\":{}}],\"usage\":null}", &u);
    assert_false(f.has_usage || f.is_usage_only);
    assert_int_equal(u.input, 9);

    u = (struct events_usage){0};
    f = read_text("{\"data\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}", &u);
    assert_true(f.has_usage && !f.is_usage_only && u.input == 7 && u.output == 0);

    u = (struct events_usage){0};
    read_text(
        "{\"usage\":{\"prompt_tokens\":-7,\"completion_tokens\":1e99,\"prompt_tokens_details\":{\"cached_tokens\":5}}}",
        &u);
    assert_true(!u.is_set && u.input == 0 && u.output == 0 && u.cached_input == 0);
}

static void usage_of_messages_and_responses_is_read(void **state)
{
    struct events_usage u = {0};
    (void)state;
    struct events_facts f = read_text(
        "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,"
        "\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":1,\"output_tokens\":1}}}",
        &u);
    assert_true(f.has_usage && u.input == 16 && u.cached_input == 5 && u.output == 1);
    read_text("{\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":20}}", &u);
    assert_true(u.input == 16 && u.cached_input == 5 && u.output == 20);

    u = (struct events_usage){0};
    read_text("{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":2,"
              "\"input_tokens_details\":{\"cached_tokens\":6}}}}",
              &u);
    assert_true(u.input == 8 && u.cached_input == 6 && u.output == 2);
}

static void errors_are_read(void **state)
{
    static const struct {
        const char *event, *message, *code;
    } cases[] = {
        {"{\"error\":{\"message\":\"too long\",\"type\":\"invalid\",\"code\":\"context_length_exceeded\"}}", "too long",
         "context_length_exceeded"},
        {"{\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"code\":500}}", "no", "server_error"},
        {"{\"error\":\"text\"}", "text", ""},
        {"{\"error\":{}}", "an error without a message", ""},
        {"{\"object\":\"error\",\"message\":\"old\",\"type\":\"BadRequestError\",\"code\":400}", "old",
         "BadRequestError"},
        {"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}", "busy",
         "overloaded_error"},
        {"{\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"gone\"}}}",
         "gone", "server_error"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct events_facts f = read_text(cases[i].event, NULL);
        assert_true(f.is_error);
        assert_string_equal(f.message, cases[i].message);
        assert_string_equal(f.code, cases[i].code);
    }
    assert_false(read_text("{\"error\":null,\"choices\":[]}", NULL).is_error);
}

static void what_is_no_object_says_nothing(void **state)
{
    static const char *const texts[] = {"", "x", "{", "[]", "null", "\"a\"", "{\"a\":1}}", "[DONE]x", "\xff"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct events_facts f = read_text(texts[i], NULL);
        assert_false(f.is_json || f.is_done || f.has_token || f.is_error || f.has_usage);
    }
    assert_true(read_text("[DONE]", NULL).is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_split_at_any_byte),
        cmocka_unit_test(an_event_is_bounded),
        cmocka_unit_test(a_receiver_may_stop_and_free),
        cmocka_unit_test(a_written_event_reads_the_same),
        cmocka_unit_test(first_tokens_are_found),
        cmocka_unit_test(usage_is_read),
        cmocka_unit_test(usage_of_messages_and_responses_is_read),
        cmocka_unit_test(errors_are_read),
        cmocka_unit_test(what_is_no_object_says_nothing),
    };
    return quire_hash_init() ? 1 : RUN_ISOLATED(tests, NULL, NULL);
}
