/* quire_grammar_normal() from C: each form has a text, errors have a status and a place. The Rust tests and
 * tests/bench/structured/walks.py check what the texts allow. */
#include "text/quire_grammar_normal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct quire_grammar_source source_of(enum quire_grammar_form form, const char *text)
{
    return (struct quire_grammar_source){.form = form, .text = text, .n_bytes = strlen(text)};
}

static void expect(struct quire_grammar_source source, const char *beginning)
{
    char *text = NULL;
    size_t n = 0;
    struct quire_error error;
    assert_int_equal(quire_grammar_normal(&source, &text, &n, &error), QUIRE_OK);
    assert_int_equal(strlen(text), n);
    assert_memory_equal(text, beginning, strlen(beginning));
    free(text);
}

static void expect_error(struct quire_grammar_source source, int status, const char *beginning)
{
    char *text = NULL;
    size_t n = 0;
    struct quire_error error;
    assert_int_equal(quire_grammar_normal(&source, &text, &n, &error), status);
    assert_null(text);
    assert_memory_equal(error.text, beginning, strlen(beginning));
}

static void test_forms(void **state)
{
    (void)state;
    expect((struct quire_grammar_source){.form = QUIRE_FORM_JSON_OBJECT}, "start: q_1\n");
    expect(source_of(QUIRE_FORM_JSON_SCHEMA, "{\"title\": \"T\", \"type\": \"null\"}"),
           "start: q_1\nq_1: %json {\"type\":\"null\",");
    expect(source_of(QUIRE_FORM_REGEX, "^[abc]$"), "start: /[a-c]/\n");
    expect(source_of(QUIRE_FORM_CHOICE, "[\"a\", \"b\"]"), "start: (\"a\" | \"b\")\n");
    expect(source_of(QUIRE_FORM_LARK, "start: \"a\" # b\n"), "start: \"a\"\n");
    expect(source_of(QUIRE_FORM_GBNF, "root ::= \"a\""), "start: ");
    expect(source_of(QUIRE_FORM_STRUCTURAL_TAG, "{\"format\": {\"type\": \"const_string\", \"value\": \"a\"}}"),
           "start: \"a\"\n");
    expect(source_of(QUIRE_FORM_TOOLS, "{\"calls\": [{\"name\": \"f\", \"begin\": \"f\"}], \"at_most\": 1}"),
           "start: q_");
}

static bool has_form(const char *normal)
{
    return quire_grammar_has_form((const uint8_t *)normal, strlen(normal));
}

static void test_forms_behind_a_reasoning(void **state)
{
    (void)state;
    assert_true(has_form("start: \"a\"\n"));
    assert_true(has_form("%reasoning {}\nstart: \"a\""));
    assert_false(has_form("%reasoning {}\n"));
    assert_false(has_form("%reasoning {}"));
    assert_false(quire_grammar_has_form(NULL, 0));
}

static void test_reasoning_and_white_space(void **state)
{
    (void)state;
    struct quire_grammar_source source = source_of(QUIRE_FORM_CHOICE, "[\"a\"]");
    const struct quire_grammar_reasoning think = {.begins = QUIRE_REASONING_INSIDE, .end = "</think>", .budget = -1};
    source.reasoning = &think;
    expect(source, "%reasoning {\"begins\":\"inside\",\"open\":\"\",\"end\":\"</think>\",\"force\":\"</think>\","
                   "\"budget\":null}\nstart: Q_1? (\"a\")\n");
    const struct quire_grammar_reasoning wrong = {.budget = 1};
    source.reasoning = &wrong;
    expect_error(source, QUIRE_INVALID, "the end of the reasoning is empty");
    source = (struct quire_grammar_source){.form = QUIRE_FORM_JSON_OBJECT, .whitespace = QUIRE_WHITESPACE_FLEXIBLE};
    expect(source, "start: q_1\nq_1: %json {\"type\":\"object\",\"x-guidance\":{\"whitespace_flexible\":true}}\n");
}

static void test_errors(void **state)
{
    (void)state;
    expect_error(source_of(QUIRE_FORM_JSON_SCHEMA, "{\"items\": {\"uniqueItems\": true}}"), QUIRE_INVALID,
                 "/items/uniqueItems: ");
    expect_error(source_of(QUIRE_FORM_REGEX, "a\xff"), QUIRE_INVALID, "byte 1: ");
    expect_error(source_of(QUIRE_FORM_STRUCTURAL_TAG, "{\"format\": {\"type\": \"x\"}}"), QUIRE_UNSUPPORTED,
                 "/format: ");
    expect_error((struct quire_grammar_source){.form = (enum quire_grammar_form)99}, QUIRE_INVALID, "form 99");
    expect_error((struct quire_grammar_source){.form = QUIRE_FORM_REGEX, .n_bytes = 1}, QUIRE_INVALID, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_forms_behind_a_reasoning),
        cmocka_unit_test(test_reasoning_and_white_space),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
