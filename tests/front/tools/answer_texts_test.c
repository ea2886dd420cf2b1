/* Texts as models of each family write them, in texts/FORMAT.jsonl, and those of make_texts.py: a whole text gives the expected parts, and each of
 * its beginnings gives the same in random pieces as whole. */
#include "server/front/tools/answer_parts.h"
#include "tests/front/front_unit_test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recorded {
    const char *text, *tools_json;
    enum tool_format tools;
    enum reasoning_format reasoning;
    bool inside;
};

/* Small pseudo-random numbers, the same in each run. */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

static size_t character_end(const char *text, size_t n, size_t at)
{
    while (at < n && ((unsigned char)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* most: bytes of a piece. */
static struct answer_parts parse(const struct recorded *r, size_t n, size_t most, uint32_t seed)
{
    struct answer_parts parts = {0};
    const struct answer_sink sink = answer_parts_sink(&parts);
    struct answer_parser p = {.reasoning.format = r->reasoning, .tools.format = r->tools};
    if (r->tools_json)
        p.tools.tools = (struct quire_value){r->tools_json, strlen(r->tools_json)};
    if (r->inside)
        p.reasoning.state = REASONING_INSIDE;
    for (size_t at = 0, end; at < n; at = end) {
        end = at + 1 + next_random(&seed) % most;
        end = character_end(r->text, n, end < n ? end : n);
        assert_true(answer_parser_push(&p, r->text + at, end - at, &sink));
    }
    assert_true(answer_parser_finish(&p, &sink));
    assert_false(parts.failed);
    assert_int_equal(parts.n_calls, p.n_calls);
    answer_parser_free(&p);
    return parts;
}

static json_t *as_json(const struct answer_parts *parts)
{
    static const char *const kinds[] = {"text", "reasoning", "call"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct answer_part *part = &parts->items[i];
        json_t *item = json_array();
        json_array_append_new(item, json_string(kinds[part->kind]));
        if (part->name)
            json_array_append_new(item, json_string(part->name));
        json_array_append_new(item, json_stringn(part->text.n > 0 ? part->text.data : "", part->text.n));
        if (part->id)
            json_array_append_new(item, json_string(part->id));
        json_array_append_new(list, item);
    }
    return list;
}

static void check_same(const json_t *got, const json_t *expected, const char *text, size_t n)
{
    if (json_equal(got, expected))
        return;
    char *is = json_dumps(got, 0), *should = json_dumps(expected, 0);
    fail_msg("%.*s: %s, not %s", (int)n, text, is, should);
}

/* All that the model wrote is in the parts, except what belongs to the notation. */
static void check_no_loss(const struct recorded *r, const struct answer_parts *parts, size_t n)
{
    if (parts->n == 1 && parts->items[0].kind == ANSWER_TEXT && r->reasoning == REASONING_NONE)
        assert_memory_equal(parts->items[0].text.data, r->text, n);
}

static void check_text(const struct recorded *r, const json_t *expected)
{
    const size_t n = strlen(r->text);
    for (size_t end = 0; end <= n; end = character_end(r->text, n, end + 1)) {
        struct answer_parts whole = parse(r, end, n + 1, 0);
        json_t *parts = as_json(&whole);
        if (end == n)
            check_same(parts, expected, r->text, n);
        check_no_loss(r, &whole, end);
        for (uint32_t seed = 0; seed < 8; seed++) {
            struct answer_parts pieces = parse(r, end, seed == 0 ? 1 : 2 * seed + 1, seed);
            json_t *other = as_json(&pieces);
            check_same(other, parts, r->text, end);
            json_decref(other);
            answer_parts_free(&pieces);
        }
        json_decref(parts);
        answer_parts_free(&whole);
    }
}

static void check_file(const char *folder, const char *name)
{
    char path[4096], line[65536];
    snprintf(path, sizeof path, "%s/tests/front/tools/%s/%s.jsonl", QUIRE_SOURCE_DIR, folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = 0;
    for (; fgets(line, sizeof line, f); n++) {
        json_t *row = json_loads(line, 0, NULL), *tools = json_object_get(row, "tool_list");
        char *tools_json = tools ? json_dumps(tools, 0) : NULL;
        const char *reasoning = json_string_value(json_object_get(row, "reasoning"));
        struct recorded r = {.text = json_string_value(json_object_get(row, "text")),
                             .tools_json = tools_json,
                             .inside = json_is_true(json_object_get(row, "inside"))};
        assert_non_null(r.text);
        assert_true(tool_format_find(json_string_value(json_object_get(row, "tools")), &r.tools));
        assert_true(reasoning_format_find(reasoning ? reasoning : "none", &r.reasoning));
        check_text(&r, json_object_get(row, "expected"));
        free(tools_json);
        json_decref(row);
    }
    fclose(f);
    assert_true(n >= 10);
}

static void every_format(void **state)
{
    (void)state;
    for (int i = TOOL_NONE + 1; i < N_TOOL_FORMATS; i++)
        check_file("texts", tool_format_name((enum tool_format)i));
}

static void thinking(void **state)
{
    (void)state;
    check_file("texts", "think");
}

/* Those of make_texts.py. */
static void made_texts(void **state)
{
    (void)state;
    for (int i = TOOL_NONE + 1; i < N_TOOL_FORMATS; i++)
        check_file("texts/made", tool_format_name((enum tool_format)i));
    check_file("texts/made", "think");
}

static void prompts_that_open_the_reasoning(void **state)
{
    (void)state;
    static const struct {
        enum reasoning_format format;
        const char *prompt;
        enum reasoning_place place;
    } rows[] = {
        {REASONING_QWEN3, "<|im_start|>assistant\n", REASONING_IS_BEFORE},
        {REASONING_QWEN3, "<|im_start|>assistant\n<think>\n", REASONING_IS_OPEN},
        {REASONING_QWEN3, "<think>\n\n</think>\n\n", REASONING_IS_OVER},
        {REASONING_DEEPSEEK_R1, "<｜Assistant｜>", REASONING_IS_OPEN},
        {REASONING_DEEPSEEK_R1, "<｜Assistant｜></think>", REASONING_IS_OVER},
        {REASONING_OPENAI_GPTOSS, "<think>", REASONING_IS_BEFORE},
        {REASONING_NONE, "<think>", REASONING_IS_BEFORE},
        {REASONING_GLM45, "", REASONING_IS_BEFORE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(reasoning_place(rows[i].format, rows[i].prompt, strlen(rows[i].prompt)), rows[i].place);
}

int run_answer_texts_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(thinking),
        cmocka_unit_test(made_texts),
        cmocka_unit_test(prompts_that_open_the_reasoning),
    };
    return cmocka_run_group_tests_name("texts of models", tests, NULL, NULL);
}
