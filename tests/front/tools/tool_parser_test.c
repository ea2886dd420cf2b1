#include "server/front/output/json_out.h"
#include "server/front/tools/tool_parser.h"
#include "tests/front/front_unit_test.h"

#include <stdio.h>
#include <string.h>

/* The parser's output: content, and each call as name(arguments). "|" marks the position of a call. */
struct heard {
    struct buffer content, calls;
    uint32_t n;
};

static void on_text(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    assert_true(n > 0);
    buffer_append(&h->content, text, n);
}

static void on_begin(void *context, const struct tool_call *call)
{
    struct heard *h = context;
    assert_true(call->n_name > 0 && call->index == h->n++);
    json_out_raw(&h->content, "|");
    buffer_append(&h->calls, call->name, call->n_name);
    json_out_raw(&h->calls, "(");
}

static void on_arguments(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    assert_true(n > 0);
    buffer_append(&h->calls, text, n);
}

static void on_end(void *context)
{
    json_out_raw(&((struct heard *)context)->calls, ")");
}

static struct tool_sink sink_of(struct heard *h)
{
    return (struct tool_sink){on_text, on_begin, on_arguments, on_end, h};
}

static void check(const struct buffer *got, const char *expected, const char *text, const char *what)
{
    if (got->n != strlen(expected) || (got->n > 0 && memcmp(got->data, expected, got->n) != 0))
        fail_msg("%s: %s: \"%.*s\", not \"%s\"", text, what, (int)got->n, got->n > 0 ? got->data : "", expected);
}

/* Feeds pieces: cut at `at`, and then every `step` bytes. */
static void parse(enum tool_format format, const char *text, size_t at, size_t step, const char *content,
                  const char *calls)
{
    struct tool_parser p = {.format = format};
    struct heard h = {0};
    const struct tool_sink sink = sink_of(&h);
    size_t n = strlen(text);
    assert_true(tool_parser_push(&p, text, at, &sink));
    for (size_t i = at; i < n; i += step)
        assert_true(tool_parser_push(&p, text + i, n - i < step ? n - i : step, &sink));
    assert_true(tool_parser_finish(&p, &sink));
    check(&h.content, content, text, "content");
    check(&h.calls, calls, text, "calls");
    tool_parser_free(&p);
    buffer_free(&h.content);
    buffer_free(&h.calls);
}

static void parse_in_any_pieces(enum tool_format format, const char *text, const char *content, const char *calls)
{
    size_t n = strlen(text);
    for (size_t at = 0; at <= n; at++) {
        parse(format, text, at, n + 1, content, calls);
        parse(format, text, at, 3, content, calls);
    }
    parse(format, text, 0, 1, content, calls);
}

struct row {
    const char *text, *content, *calls; /* content NULL: the text, unchanged */
};

static void check_rows(enum tool_format format, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        parse_in_any_pieces(format, rows[i].text, rows[i].content ? rows[i].content : rows[i].text, rows[i].calls);
}

#define F "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"

#define TEN(x) x x x x x x x x x x
#define DEEP TEN("[[[[[[[") TEN("]]]]]]]")

static void hermes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"", NULL, ""},
        {"Hello.", NULL, ""},
        {"  Hello \n", NULL, ""},
        {"a < b, <tool", NULL, ""},
        {" \n<tool_call>" F "</tool_call> \n three ", "|three ", "f({\"a\": 1})"},
        {"<tool_call>\n" F "\n</tool_call>", "|", "f({\"a\": 1})"},
        {"<tool_call>" F "</tool_call>", "|", "f({\"a\": 1})"},
        /* Blanks before calls are dropped; so are blanks after them, unless they separate text. */
        {"Let me see.\n\n<tool_call>\n" F "\n</tool_call>\n", "Let me see.|", "f({\"a\": 1})"},
        {"One \n two <tool_call>" F "</tool_call> \n three ", "One \n two| \n three ", "f({\"a\": 1})"},
        {"<tool_call>\n" F "\n</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>\n", "||",
         "f({\"a\": 1})g({})"},
        /* The text of the model is kept: order, blanks, escapes, nesting, end tags inside. */
        {"<tool_call>{ \"arguments\" : { \"b\":[1 , {\"c\":\"}\\\"\\\\\"}] } , \"id\": [2],"
         " \"name\":\"f\\u0031\" }</tool_call>",
         "|", "f1({ \"b\":[1 , {\"c\":\"}\\\"\\\\\"}] })"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call> <tool_call>{\"}}</tool_call>!", "|!",
         "f({\"s\":\"</tool_call> <tool_call>{\"})"},
        {"<tool_call>{\"x\":{\"arguments\":{\"no\":1}},\"name\":\"f\",\"arguments\":{\"yes\":1}}</tool_call>", "|",
         "f({\"yes\":1})"},
        {"<tool_call>{\"name\":\"f\",\"parameters\":{\"a\":1}}</tool_call>", "|", "f({\"a\":1})"},
        /* The end may truncate the end tag. */
        {"<tool_call>\n" F, "|", "f({\"a\": 1})"},
        {"<tool_call>\n" F "\n</tool_", "|", "f({\"a\": 1})"},
        /* The parser does not judge a call: numbers, escapes, repeated keys and nesting are the client's concern. */
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":123456789012345678901234567890}}</tool_call>", "|",
         "f({\"a\":123456789012345678901234567890})"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1e400,\"b\":NaN,\"a\":-0}}</tool_call>", "|",
         "f({\"a\":1e400,\"b\":NaN,\"a\":-0})"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\u0000\\ud800\\x\"}}</tool_call>", "|",
         "f({\"a\":\"\\u0000\\ud800\\x\"})"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" DEEP "}}</tool_call>", "|", "f({\"a\":" DEEP "})"},
        {"<tool_call>{\"name\":\"f\",\"name\":\"g\",\"arguments\":{},\"arguments\":{\"a\":1}}</tool_call>", "|",
         "f({})"},
        /* This includes a call whose arguments are invalid JSON. */
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>", "|", "f({\"a\": })"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {'a': 1, b: [2}}</tool_call>", "|", "f({'a': 1, b: [2})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": not JSON }</tool_call>", "|", "f(not JSON)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": [1, {\"a\": 2}]}</tool_call>", "|", "f([1, {\"a\": 2}])"},
        {"<tool_call>{\"arguments\": null, \"name\": \"f\"}</tool_call>", "|", "f(null)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":]}}</tool_call>", "|", "f({\"a\":]})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"1\n2\"}}</tool_call>", "|", "f({\"a\": \"1\n2\"})"},
        /* It also includes a truncated call: by the end of the text, a missing brace or a missing quote. */
        {"so <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x", "so|", "f({\"a\": \"x)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {", "|", "f({)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}", "|", "f({\"a\": 1})"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>", "|", "f({\"a\": 1})"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_", "|", "f({\"a\": 1})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1</tool_call> and <tool_call>" F "</tool_call>", "|and|",
         "f({\"a\": [1)f({\"a\": 1})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x}}</tool_call> and on", "|",
         "f({\"a\": \"x}}</tool_call> and on)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x}}\n</tool_call> and on", "|and on",
         "f({\"a\": \"x}}\n)"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x}</tool_call><tool_call>{'name</tool_call>!", "|",
         "f({\"a\": \"x}</tool_call><tool_call>{'name</tool_call>!)"},
        /* Text that is not a call is returned unchanged. */
        {"<tool_call>\n{\"name\": \"f\", \"arguments\":", NULL, ""},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": }</tool_call>", NULL, ""},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": , \"x\": 1}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": \"f\\u0000\", \"arguments\": {}}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": \"f, \"arguments\": {}}</tool_call>", NULL, ""},
        {"so <tool_call>\n{\"name\": \"f\", \"argum", NULL, ""},
        {"<tool_call>not JSON</tool_call> and on", NULL, ""},
        {"<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": \"f\"}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>", NULL, ""},
        {"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>", NULL, ""},
        {"<tool_call>" F " oh\n</tool_call>", "|oh\n</tool_call>", "f({\"a\": 1})"},
        {"<tool_call>{]}</tool_call>", NULL, ""},
        {"<tool_call> ", NULL, ""},
        {"<tool_call><tool_call>" F "</tool_call>", "<tool_call>|", "f({\"a\": 1})"},
        {"x <tool_call>{\"a\":1}</tool_call> <tool_call>" F "</tool_call>", "x <tool_call>{\"a\":1}</tool_call>|",
         "f({\"a\": 1})"},
        {"<<tool_call><<tool_call>" F "</tool_call>", "<<tool_call><|", "f({\"a\": 1})"},
    };
    check_rows(TOOL_HERMES, rows, sizeof rows / sizeof *rows);
}

#define G "{\"name\": \"g\", \"parameters\": {\"b\": \"x\"}}"

static void llama3_json(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"", NULL, ""},
        {" \n", NULL, ""},
        {"Hello {\"name\": \"g\", \"parameters\": {}}", NULL, ""},
        {G, "|", "g({\"b\": \"x\"})"},
        {"\n " G " \n", "|", "g({\"b\": \"x\"})"},
        {"<|python_tag|>" G, "|", "g({\"b\": \"x\"})"},
        {"<|python_tag|> " F, "|", "f({\"a\": 1})"},
        {G "; " F, "||", "g({\"b\": \"x\"})f({\"a\": 1})"},
        {G ";" G ";" G, "|||", "g({\"b\": \"x\"})g({\"b\": \"x\"})g({\"b\": \"x\"})"},
        {G " That was it.", "|That was it.", "g({\"b\": \"x\"})"},
        {G "; or " G, "|; or " G, "g({\"b\": \"x\"})"},
        {G ";", "|;", "g({\"b\": \"x\"})"},
        {G "; {\"a\":1} " G, "|; {\"a\":1} " G, "g({\"b\": \"x\"})"},
        {"{\"a\": 1}; " G, NULL, ""},
        {"{\"name\": \"Bob\"}", NULL, ""},
        {"{\"name\": \"g\", \"parameters\": {", "|", "g({)"},
        {"{\"name\": \"g\", \"parameters\": {\"a\": 1e400, \"b\": </tool_call>", "|",
         "g({\"a\": 1e400, \"b\": </tool_call>)"},
        {G "; {\"name\": \"g\", \"parameters\": {\"b\": \"", "||", "g({\"b\": \"x\"})g({\"b\": \")"},
        {"{\"name\": \"g\", \"parameters\":", NULL, ""},
        {"<|python_tag|>print(1)", NULL, ""},
        {"<|python", NULL, ""},
        {"<|python_tag|>", NULL, ""},
    };
    check_rows(TOOL_LLAMA3_JSON, rows, sizeof rows / sizeof *rows);
}

/* Pushes a whole reply in one piece. */
static void large(void **state)
{
    static char text[20001], content[20002];
    const char call[] = "<tool_call>" F "</tool_call>";
    (void)state;
    for (size_t at = 4000; at < 4200; at++) {
        memset(text, 'x', sizeof text - 1);
        memcpy(text + at, call, sizeof call - 1);
        snprintf(content, sizeof content, "%.*s|%s", (int)at, text, text + at + sizeof call - 1);
        parse(TOOL_HERMES, text, 0, sizeof text, content, "f({\"a\": 1})");
    }
}

/* A megabyte of calls with unterminated strings becomes content, and not in quadratic time. */
static void many_without_an_end(void **state)
{
    (void)state;
    static const char piece[] = "</tool_call><tool_call>{\\\"";
    struct buffer text = {0};
    struct heard h = {0};
    struct tool_parser p = {.format = TOOL_HERMES};
    const struct tool_sink sink = sink_of(&h);
    json_out_raw(&text, "<tool_call>{\"");
    for (size_t i = 0; i < 40000; i++)
        json_out_raw(&text, piece);
    assert_true(tool_parser_push(&p, text.data, text.n, &sink) && tool_parser_finish(&p, &sink));
    check(&h.content, buffer_text(&text) ? text.data : "", "many", "content");
    tool_parser_free(&p);
    buffer_free(&h.content);
    buffer_free(&h.calls);
    buffer_free(&text);
}

static void names(void **state)
{
    (void)state;
    enum tool_format format;
    assert_true(tool_format_find("hermes", &format) && format == TOOL_HERMES);
    assert_true(tool_format_find("llama3_json", &format) && format == TOOL_LLAMA3_JSON);
    assert_true(tool_format_find("none", &format) && format == TOOL_NONE);
    assert_false(tool_format_find("", &format) || tool_format_find("Hermes", &format));
    assert_null(tool_format_tag(TOOL_NONE));
}

/* Arguments do not wait for the end of the call. */
static void arguments_come_in_pieces(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *begin, *end, *first, *more, *all;
    } rows[] = {
        {TOOL_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"", "\"}}\n</tool_call>", "f({\"a\": \"",
         "f({\"a\": \"xy", "f({\"a\": \"xy\"})"},
        {TOOL_QWEN3_CODER, "<function=f>\n<parameter=a>\n", "\n</parameter></function>", "f({\"a\": \"",
         "f({\"a\": \"xy", "f({\"a\": \"xy\"})"},
        {TOOL_PYTHONIC, "[f(a='", "')]", "f({\"a\": \"", "f({\"a\": \"xy", "f({\"a\": \"xy\"})"},
        {TOOL_MISTRAL, "[TOOL_CALLS]f{\"a\": \"", "\"}", "f({\"a\": \"", "f({\"a\": \"xy", "f({\"a\": \"xy\"})"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tool_parser p = {.format = rows[i].format};
        struct heard h = {0};
        const struct tool_sink sink = sink_of(&h);
        assert_true(tool_parser_push(&p, rows[i].begin, strlen(rows[i].begin), &sink));
        check(&h.calls, rows[i].first, rows[i].begin, "the call's beginning");
        assert_true(tool_parser_push(&p, "xy", 2, &sink));
        check(&h.calls, rows[i].more, rows[i].begin, "two more characters");
        assert_true(tool_parser_push(&p, rows[i].end, strlen(rows[i].end), &sink));
        check(&h.calls, rows[i].all, rows[i].begin, "the whole call");
        assert_true(tool_parser_finish(&p, &sink));
        tool_parser_free(&p);
        buffer_free(&h.content);
        buffer_free(&h.calls);
    }
}

#define QWEN(value) "<function=f><parameter=a>" value "</parameter><parameter=s>x</parameter></function>!"
#define GLM(value) \
    "<tool_call>f<arg_key>a</arg_key><arg_value>" value \
    "</arg_value><arg_key>s</arg_key><arg_value>x</arg_value></tool_call>!"

/* A tag in a string of a list or an object does not end the value, in any pieces. */
static void tags_in_strings_of_values(void **state)
{
    (void)state;
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
                                "{\"a\":{\"type\":\"object\"},\"s\":{\"type\":\"string\"}}}}}]";
    static const struct {
        enum tool_format format;
        const char *text, *calls;
    } rows[] = {
        {TOOL_QWEN3_CODER, QWEN("\n{\"b\": \"</parameter>\"}\n"),
         "f({\"a\": {\"b\": \"</parameter>\"}, \"s\": \"x\"})"},
        {TOOL_QWEN3_CODER, QWEN("[\"\\\"</parameter>\", \"</function>\"]"),
         "f({\"a\": [\"\\\"</parameter>\", \"</function>\"], \"s\": \"x\"})"},
        {TOOL_QWEN3_CODER, QWEN("{\"b\": 1}"), "f({\"a\": {\"b\": 1}, \"s\": \"x\"})"},
        /* No JSON: the first tag ends it. */
        {TOOL_QWEN3_CODER, QWEN("{\"b\": 1"), "f({\"a\": \"{\\\"b\\\": 1\", \"s\": \"x\"})"},
        {TOOL_QWEN3_CODER, QWEN("{\"b"), "f({\"a\": \"{\\\"b\", \"s\": \"x\"})"},
        {TOOL_QWEN3_CODER, QWEN("\"it"), "f({\"a\": \"\\\"it\", \"s\": \"x\"})"},
        {TOOL_GLM45, GLM("{\"b\": \"</arg_value>\"}"), "f({\"a\": {\"b\": \"</arg_value>\"}, \"s\": \"x\"})"},
        {TOOL_GLM45, GLM("[\""), "f({\"a\": \"[\\\"\", \"s\": \"x\"})"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = strlen(rows[i].text);
        for (size_t step = 1; step <= n; step++) {
            struct tool_parser p = {.format = rows[i].format, .tools = {tools, sizeof tools - 1}};
            struct heard h = {0};
            const struct tool_sink sink = sink_of(&h);
            for (size_t at = 0; at < n; at += step)
                assert_true(tool_parser_push(&p, rows[i].text + at, step < n - at ? step : n - at, &sink));
            assert_true(tool_parser_finish(&p, &sink));
            check(&h.calls, rows[i].calls, rows[i].text, "calls");
            check(&h.content, "|!", rows[i].text, "content");
            tool_parser_free(&p);
            buffer_free(&h.content);
            buffer_free(&h.calls);
        }
    }
}

/* A megabyte of arguments, and of what almost begins calls, in small pieces: a square of the time would be minutes. */
static void time_is_linear(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *begin, *repeated;
    } rows[] = {
        {TOOL_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "<\\\""},
        {TOOL_HERMES, "<tool_call>{\"arguments\":{\"a\":\"", "</tool_call>"},
        {TOOL_HERMES, "", "<tool_call>{"},
        {TOOL_HERMES, "x", " "},
        {TOOL_QWEN3_CODER, "<function=f><parameter=a>", "\n</parameter\n"},
        {TOOL_QWEN3_CODER, "", "<function=f>"},
        {TOOL_GLM45, "<tool_call>f<arg_key>a</arg_key><arg_value>", "[<"},
        {TOOL_GLM45, "", "<tool_call>f<arg_key>a</arg_key><arg_value>[\"</arg_value></tool_call>"},
        {TOOL_GLM45, "<tool_call>f<arg_key>a</arg_key><arg_value>[\"", "</arg_value>"},
        {TOOL_PYTHONIC, "[f(a=[", "'a', {1: 2}, "},
        {TOOL_KIMI_K2, "", "<|tool_call_begin|>functions."},
        {TOOL_MISTRAL, "[TOOL_CALLS][", "{\"name\":1},"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tool_parser p = {.format = rows[i].format};
        struct heard h = {0};
        const struct tool_sink sink = sink_of(&h);
        assert_true(tool_parser_push(&p, rows[i].begin, strlen(rows[i].begin), &sink));
        const size_t n = strlen(rows[i].repeated);
        for (size_t k = 0; k < (1 << 20); k += n)
            assert_true(tool_parser_push(&p, rows[i].repeated, n, &sink));
        assert_true(tool_parser_finish(&p, &sink));
        assert_true(h.content.n + h.calls.n >= (1 << 20) / 8); /* tags of calls are not passed on */
        tool_parser_free(&p);
        buffer_free(&h.content);
        buffer_free(&h.calls);
    }
}

int run_tool_parser_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes),         cmocka_unit_test(llama3_json),
        cmocka_unit_test(large),          cmocka_unit_test(many_without_an_end),
        cmocka_unit_test(names),          cmocka_unit_test(arguments_come_in_pieces),
        cmocka_unit_test(time_is_linear), cmocka_unit_test(tags_in_strings_of_values),
    };
    return cmocka_run_group_tests_name("tool parser", tests, NULL, NULL);
}
