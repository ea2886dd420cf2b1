#include "tests/tools/bench_test.h"

#include "tools/bench/lib/event.h"
#include "tools/bench/lib/sse.h"

#include <stdlib.h>
#include <string.h>

/* Consecutive events, each ended by '|'. */
struct heard {
    char text[512];
    size_t n;
};

static void hear(void *context, const char *data, size_t n)
{
    struct heard *h = context;
    assert_int_equal(data[n], 0);
    assert_true(h->n + n + 2 < sizeof h->text);
    memcpy(h->text + h->n, data, n);
    h->n += n;
    h->text[h->n++] = '|';
    h->text[h->n] = 0;
}

/* The stream in pieces of `step` bytes. */
static struct heard feed(const char *stream, size_t n, size_t step)
{
    struct bench_sse s = {0};
    struct heard h = {0};
    for (size_t at = 0; at < n; at += step) {
        size_t len = n - at < step ? n - at : step;
        char *exact = malloc(len); /* a sanitizer finds a read past the end */
        memcpy(exact, stream + at, len);
        assert_int_equal(bench_sse_push(&s, exact, len, hear, &h, NULL), QUIRE_OK);
        free(exact);
    }
    bench_sse_free(&s);
    return h;
}

static void events_are_the_standards(void **state)
{
    (void)state;
    static const struct {
        const char *stream, *events;
    } cases[] = {
        {"data: one\n\ndata:two\n\n", "one|two|"},
        {"data: one\r\n\r\ndata: two\r\n\r\n", "one|two|"},
        {"data: one\r\rdata: two\r\r", "one|two|"},
        {"data: one\n\r\ndata: two\r\n\n", "one|two|"},
        {": ping\n\ndata: a\n: within\ndata: b\n\n", "a\nb|"},
        {"data: a\r\ndata: b\r\n\r\n", "a\nb|"},
        {"event: x\nid: 3\nretry: 9\ndata: a\n\n", "a|"},
        {"data:  two spaces\n\n", " two spaces|"},
        {"data\n\n", "|"},
        {"data:\ndata:\n\n", "\n|"},
        {"datax: no\n\ndat: no\n\n Data: no\n\n", ""},
        {"\n\n\n", ""},
        {"data: never ended", ""},
        {"data: never ended\n", ""},
        {"\xef\xbb\xbf"
         "data: marked\n\n\xef\xbb\xbf"
         "data: not\n\n",
         "marked|"},
        {"data: {\"a\": \"b: c\"}\n\ndata: [DONE]\n\n", "{\"a\": \"b: c\"}|[DONE]|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].stream);
        for (size_t step = 1; step <= n; step++)
            assert_string_equal(feed(cases[i].stream, n, step).text, cases[i].events);
    }
    assert_int_equal(feed("data: a\0b\n\n", 11, 3).n, 4);
}

static void an_event_without_end_is_refused(void **state)
{
    (void)state;
    static char bytes[65536];
    struct bench_sse s = {0};
    struct heard h = {0};
    struct quire_error err;
    int status = QUIRE_OK;
    size_t n = 0;
    memset(bytes, 'x', sizeof bytes);
    for (; status == QUIRE_OK && n < 2 * BENCH_SSE_MAX_BYTES; n += sizeof bytes)
        status = bench_sse_push(&s, bytes, sizeof bytes, hear, &h, &err);
    assert_int_equal(status, QUIRE_INVALID);
    assert_true(n <= BENCH_SSE_MAX_BYTES + sizeof bytes);
    assert_non_null(strstr(err.text, "event"));
    bench_sse_free(&s);
}

/* ---- contents of an event ---- */

#define E(end, choice, token, finish, usage, in, out) {end, choice, token, finish, usage, in, out}

static void events_say_what_they_hold(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        struct bench_event event;
    } cases[] = {
        {"[DONE]", E(true, false, false, false, false, 0, 0)},
        {"{\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}", E(false, true, true, false, false, 0, 0)},
        {"{\"choices\":[{\"text\":\"\\u0000\",\"finish_reason\":null}]}",
         E(false, true, true, false, false, 0, 0)}, /* a model of random weights writes it */
        {"{\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}", E(false, true, true, false, false, 0, 0)},
        {"{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}", E(false, true, true, true, false, 0, 0)},
        {"{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}", E(false, true, false, true, false, 0, 0)},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
         E(false, true, false, false, false, 0, 0)},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}",
         E(false, true, true, false, false, 0, 0)},
        {"{\"choices\":[{\"delta\":{\"content\":\"\"}}]}", E(false, true, true, false, false, 0, 0)},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}", E(false, true, true, false, false, 0, 0)},
        {"{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", E(false, true, false, true, false, 0, 0)},
        {"{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9}}",
         E(false, false, false, false, true, 7, 9)},
        {"{\"choices\":[],\"usage\":null}", E(false, false, false, false, false, 0, 0)},
        {"{\"choices\":[],\"usage\":{\"prompt_tokens\":-7,\"completion_tokens\":1e9}}",
         E(false, false, false, false, true, 0, 0)},
        {"{}", E(false, false, false, false, false, 0, 0)},
        {"[]", E(false, false, false, false, false, 0, 0)},
        {"3", E(false, false, false, false, false, 0, 0)},
        {"{\"choices\":{},\"usage\":[]}", E(false, false, false, false, false, 0, 0)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_event e;
        const struct bench_event *want = &cases[i].event;
        assert_int_equal(bench_event_read(cases[i].json, strlen(cases[i].json), &e, NULL), QUIRE_OK);
        if (e.is_end != want->is_end || e.has_choice != want->has_choice || e.has_token != want->has_token ||
            e.is_finish != want->is_finish || e.has_usage != want->has_usage || e.n_prompt != want->n_prompt ||
            e.n_output != want->n_output)
            fail_msg("%s", cases[i].json);
    }
}

static void errors_are_shown_and_harmless(void **state)
{
    (void)state;
    struct bench_event e;
    struct quire_error err;
    char shown[64];
    const char *error = "{\"error\":{\"message\":\"no \\u001b[31mroom\\nleft\"}}",
               *plain = "<html>\r\n502\xe2\x80</html>";
    assert_int_equal(bench_event_read(error, strlen(error), &e, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "no  [31mroom left");
    assert_int_equal(bench_event_read("{\"a\"", 4, &e, &err), QUIRE_INVALID);
    assert_int_equal(bench_event_read("{\"error\":{}}", 12, &e, &err), QUIRE_INVALID);
    bench_error_text(error, strlen(error), shown, sizeof shown);
    assert_string_equal(shown, "no  [31mroom left");
    bench_error_text(plain, strlen(plain), shown, sizeof shown);
    assert_string_equal(shown, "<html>  502?"
                               "?</html>");
    bench_error_text("{\"message\":\"vLLM of old\"}", 25, shown, 6);
    assert_string_equal(shown, "vLLM ");
    bench_error_text("", 0, shown, sizeof shown);
    assert_string_equal(shown, "");
}

int run_sse_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_standards),
        cmocka_unit_test(an_event_without_end_is_refused),
        cmocka_unit_test(events_say_what_they_hold),
        cmocka_unit_test(errors_are_shown_and_harmless),
    };
    return cmocka_run_group_tests_name("bench sse", tests, NULL, NULL);
}
