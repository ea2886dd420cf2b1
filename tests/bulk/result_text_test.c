/* The texts of results. */
#include "server/bulk/run/result_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct bulk_line line = {.custom_id = "\"a\"", .n_custom_id = 3};

static int put(struct buffer *o, const char *body, struct bulk_tokens *tokens)
{
    const struct result_of of = {BULK_OPENAI, "id-1", &line};
    struct result_reply r = {.status = 200, .body = strdup(body), .n_body = strlen(body)};
    struct quire_error err;
    buffer_clear(o);
    const int status = result_text_reply(o, &of, &r, tokens, &err);
    free(r.body);
    return status;
}

/* A model may write any character, and a character of several tokens may stay half. */
static void answers_may_have_any_character(void **state)
{
    static const char *const texts[] = {"plain", "\\u0000", "a\\u0000b\\u001f", "\\ud800", "\xef\xbf\xbd"};
    struct buffer o = {0};
    struct bulk_tokens tokens;
    char body[256];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(body, sizeof body,
                 " {\"choices\":[{\"text\":\"%s\"}],\n\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\r\n",
                 texts[i]);
        assert_int_equal(put(&o, body, &tokens), QUIRE_OK);
        assert_true(tokens.input == 7 && tokens.output == 3);
        assert_non_null(strstr(buffer_text(&o), texts[i]));
        assert_null(strchr(buffer_text(&o), '\n'));
    }
    buffer_free(&o);
}

static void other_replies_are_no_results(void **state)
{
    static const char *const bodies[] = {"", " ", "{", "{}{}", "<html>", "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}"};
    struct buffer o = {0};
    struct bulk_tokens tokens;
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        assert_int_equal(put(&o, bodies[i], &tokens), QUIRE_INVALID);
    buffer_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_may_have_any_character),
        cmocka_unit_test(other_replies_are_no_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
