/* One line: what it requests, and what is wrong with it. */
#include "server/bulk/run/line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"

static void good_lines(void **state)
{
    static const char openai[] = "{\"custom_id\":\"a\\u0062\",\"method\":\"POST\",\"url\":\"" CHAT
                                 "\", \"extra\":1,\"body\" : {\"n\":1} }";
    static const char anthropic[] = "{\"params\":{\"max_tokens\":2},\"custom_id\":\"z\"}";
    struct bulk_line line;
    struct quire_error err;
    (void)state;
    assert_int_equal(bulk_line_read(openai, strlen(openai), BULK_OPENAI, CHAT, &line, &err), QUIRE_OK);
    assert_int_equal(line.n_custom_id, 9);
    assert_memory_equal(line.custom_id, "\"a\\u0062\"", 9);
    assert_int_equal(line.n_body, 7);
    assert_memory_equal(line.body, "{\"n\":1}", 7);
    assert_string_equal(line.url, CHAT);
    assert_int_equal(bulk_line_read(openai, strlen(openai), BULK_OPENAI, NULL, &line, &err), QUIRE_OK);
    assert_string_equal(line.url, CHAT);
    assert_int_equal(bulk_line_read(anthropic, strlen(anthropic), BULK_ANTHROPIC, NULL, &line, &err), QUIRE_OK);
    assert_string_equal(line.url, BULK_MESSAGES_URL);
    assert_memory_equal(line.body, "{\"max_tokens\":2}", line.n_body);
}

static void wrong_lines(void **state)
{
    static const struct {
        const char *text, *says;
        bool has_custom_id;
    } rows[] = {
        {"", "is not valid JSON", false},
        {"nonsense", "is not valid JSON", false},
        {"[1]", "must be a JSON object", false},
        {"{\"custom_id\":\"a\",\"custom_id\":\"b\"}", "twice", false},
        {"{\"custom_id\":\"\xff\"}", "not UTF-8", false},
        {"{\"custom_id\":\"a\"} {}", "is not valid JSON", false},
        {"{}", "custom_id: must be a string", false},
        {"{\"custom_id\":\"\"}", "custom_id: must be a string", false},
        {"{\"custom_id\":7}", "custom_id: must be a string", false},
        {"{\"custom_id\":\"a\"}", "method: must be \"POST\"", true},
        {"{\"custom_id\":\"a\",\"method\":\"GET\"}", "method: must be \"POST\"", true},
        {"{\"custom_id\":\"a\",\"method\":\"POST\"}", "url: must be \"" CHAT "\"", true},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}", "url: must be", true},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" CHAT "\"}", "body: must be an object", true},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" CHAT "\",\"body\":[]}", "body: must be an object", true},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" CHAT "\",\"body\":{\"stream\":true}}", "body.stream",
         true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bulk_line line;
        struct quire_error err = {.text = ""};
        assert_int_equal(bulk_line_read(rows[i].text, strlen(rows[i].text), BULK_OPENAI, CHAT, &line, &err),
                         QUIRE_INVALID);
        if (!strstr(err.text, rows[i].says) || (line.custom_id != NULL) != rows[i].has_custom_id)
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void endpoints_of_lines(void **state)
{
    char text[256];
    struct bulk_line line;
    struct quire_error err;
    size_t n = 0;
    (void)state;
    for (; bulk_endpoint(n); n++) {
        snprintf(text, sizeof text, "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"%s\",\"body\":{}}",
                 bulk_endpoint(n));
        assert_int_equal(bulk_line_read(text, strlen(text), BULK_OPENAI, NULL, &line, &err), QUIRE_OK);
        assert_string_equal(line.url, bulk_endpoint(n));
    }
    assert_int_equal(n, 4);
    snprintf(text, sizeof text, "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/models\",\"body\":{}}");
    assert_int_equal(bulk_line_read(text, strlen(text), BULK_OPENAI, NULL, &line, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "url: must be one of"));
}

static void long_lines(void **state)
{
    struct bulk_line line;
    struct quire_error err;
    const size_t n = BULK_MAX_LINE_BYTES + 1;
    char *text = malloc(n);
    (void)state;
    memset(text, ' ', n);
    assert_int_equal(bulk_line_read(text, n, BULK_OPENAI, CHAT, &line, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "at most 16777216"));
    /* A custom_id is limited, because every entry of the error file repeats it. */
    snprintf(text, n, "{\"custom_id\":\"%0600d\"}", 1);
    assert_int_equal(bulk_line_read(text, strlen(text), BULK_OPENAI, CHAT, &line, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "custom_id: has 600 bytes"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lines),
        cmocka_unit_test(wrong_lines),
        cmocka_unit_test(endpoints_of_lines),
        cmocka_unit_test(long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
