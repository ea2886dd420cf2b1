/* The lines of a file: where they are, which repeat a custom_id, and the order in which they run. */
#include "server/bulk/run/input.h"

#include "base/hash.h"
#include "server/bulk/run/prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COMPLETIONS "/v1/completions"
#define MANY 1000000

static char path[64];

static void write_file(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static struct bulk_input *open_text(const char *text)
{
    struct bulk_input *in;
    struct quire_error err = {.text = ""};
    write_file(text, strlen(text));
    if (bulk_input_open(path, BULK_OPENAI, COMPLETIONS, MANY, &in, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return in;
}

#define LINE(id, prompt) \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":{\"prompt\":\"" prompt "\"}}"

static void lines_and_blanks(void **state)
{
    struct buffer text = {0};
    struct bulk_line line;
    struct quire_error err;
    (void)state;
    struct bulk_input *in = open_text(
        "\xEF\xBB\xBF" LINE("a", "x") "\r\n\n   \t\r\n" LINE("b", "y") "\nwrong\n" LINE("c", "z"));
    assert_int_equal(bulk_input_lines(in), 4);
    assert_int_equal(bulk_input_read(in, 0, &text, &line, &err), QUIRE_OK);
    assert_memory_equal(line.custom_id, "\"a\"", 3);
    assert_int_equal(bulk_input_read(in, 1, &text, &line, &err), QUIRE_OK);
    assert_memory_equal(line.body, "{\"prompt\":\"y\"}", line.n_body);
    assert_int_equal(bulk_input_number(in, 1), 4);
    assert_int_equal(bulk_input_read(in, 2, &text, &line, &err), QUIRE_INVALID);
    assert_int_equal(bulk_input_read(in, 3, &text, &line, &err), QUIRE_OK); /* without a line end */
    bulk_input_close(in);
    buffer_free(&text);
}

static void a_repeated_custom_id(void **state)
{
    struct buffer text = {0};
    struct bulk_line line;
    struct quire_error err;
    (void)state;
    struct bulk_input *in = open_text(
        LINE("a", "x") "\n" LINE("b", "x") "\n\n" LINE("a", "y") "\n" LINE("\\u0061", "z"));
    assert_int_equal(bulk_input_read(in, 0, &text, &line, &err), QUIRE_OK);
    assert_int_equal(bulk_input_read(in, 2, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "custom_id: line 1 has the same");
    assert_memory_equal(line.custom_id, "\"a\"", 3); /* for the entry of the error file */
    /* Another spelling of the same text: clients could not tell their results apart. */
    assert_int_equal(bulk_input_read(in, 3, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "custom_id: line 1 has the same");
    bulk_input_close(in);
    buffer_free(&text);
}

/* Long lines are parsed once: a later read finds the same parts, the same errors, and any change of the file. */
static void long_lines_are_parsed_once(void **state)
{
    enum { N = 200000 };
    static const char *const parts[] = {
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":{\"prompt\":\"",
        "\"}}\n" LINE("b", "y") "\n{\"custom_id\":\"c\",\"method\":\"GET\",\"url\":\"/\",\"body\":{\"prompt\":\"",
        "\"}}\n{\"custom_id\":\"d\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":{\"prompt\":\"",
        "\"}}\n{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":{\"prompt\":\"",
    };
    struct buffer all = {0}, text = {0};
    struct bulk_line line;
    struct quire_error err;
    char *x = malloc(N);
    (void)state;
    memset(x, 'x', N);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        buffer_append(&all, parts[i], strlen(parts[i]));
        buffer_append(&all, x, N);
    }
    buffer_append(&all, "\"}}\n", 4);
    struct bulk_input *in = open_text(buffer_text(&all));
    for (uint32_t i = 0; i < 4; i += 3) {
        assert_int_equal(bulk_input_read(in, i, &text, &line, &err), QUIRE_OK);
        assert_memory_equal(line.custom_id, i ? "\"d\"" : "\"a\"", 3);
        assert_string_equal(line.url, COMPLETIONS);
        assert_int_equal(line.n_body, N + sizeof "{\"prompt\":\"\"}" - 1);
        assert_memory_equal(line.body, "{\"prompt\":\"xx", 13);
    }
    assert_int_equal(bulk_input_read(in, 1, &text, &line, &err), QUIRE_OK);
    assert_int_equal(bulk_input_read(in, 2, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "method: must be \"POST\"");
    assert_memory_equal(line.custom_id, "\"c\"", 3);
    assert_int_equal(bulk_input_read(in, 4, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "custom_id: line 1 has the same");
    all.data[N / 2] = 'y';
    write_file(all.data, all.n);
    assert_int_equal(bulk_input_read(in, 0, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "the input was changed while it was read");
    bulk_input_close(in);
    buffer_free(&text);
    buffer_free(&all);
    free(x);
}

static void files_that_cannot_be_read(void **state)
{
    struct bulk_input *in;
    struct quire_error err;
    (void)state;
    write_file("\n \n", 3);
    assert_int_equal(bulk_input_open(path, BULK_OPENAI, NULL, MANY, &in, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "the input has no lines");
    write_file("a\nb\nc", 5);
    assert_int_equal(bulk_input_open(path, BULK_OPENAI, NULL, 2, &in, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "the input has more than 2 lines");
    assert_int_equal(bulk_input_open("/tmp", BULK_OPENAI, NULL, 2, &in, &err), QUIRE_IO);
    assert_int_equal(bulk_input_open("/dev/null/input", BULK_OPENAI, NULL, 2, &in, &err), QUIRE_IO);
    assert_null(in);
}

/* A line of 20 MB between good ones is one error; a file that is cut later is another. */
static void a_long_line_and_a_cut_file(void **state)
{
    const size_t n = (size_t)20 << 20;
    char *bytes = malloc(n);
    struct buffer text = {0};
    struct bulk_line line;
    struct quire_error err;
    (void)state;
    memset(bytes, 'x', n);
    memcpy(bytes, LINE("a", "x") "\n", strlen(LINE("a", "x")) + 1);
    memcpy(bytes + n - strlen(LINE("b", "x")) - 1, "\n" LINE("b", "x"), strlen(LINE("b", "x")) + 1);
    struct bulk_input *in;
    write_file(bytes, n);
    assert_int_equal(bulk_input_open(path, BULK_OPENAI, COMPLETIONS, MANY, &in, &err), QUIRE_OK);
    assert_int_equal(bulk_input_lines(in), 3);
    assert_int_equal(bulk_input_read(in, 1, &text, &line, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "at most 16777216 are allowed"));
    assert_int_equal(bulk_input_read(in, 2, &text, &line, &err), QUIRE_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(bulk_input_read(in, 2, &text, &line, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "the input was cut while it was read");
    bulk_input_close(in);
    buffer_free(&text);
    free(bytes);
}

static void the_digest_names_bytes_and_kind(void **state)
{
    struct bulk_input *in[4];
    struct quire_error err;
    (void)state;
    in[0] = open_text(LINE("a", "x"));
    in[1] = open_text(LINE("a", "y"));
    assert_int_equal(bulk_input_open(path, BULK_ANTHROPIC, COMPLETIONS, MANY, &in[2], &err), QUIRE_OK);
    assert_int_equal(bulk_input_open(path, BULK_OPENAI, "/v1/embeddings", MANY, &in[3], &err), QUIRE_OK);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_true(bulk_input_digest(in[i]) != bulk_input_digest(in[j]));
    struct bulk_input *again;
    assert_int_equal(bulk_input_open(path, BULK_OPENAI, COMPLETIONS, MANY, &again, &err), QUIRE_OK);
    assert_true(bulk_input_digest(again) == bulk_input_digest(in[1]));
    bulk_input_close(again);
    for (int i = 0; i < 4; i++)
        bulk_input_close(in[i]);
}

/* 1,000 lines, of which every third in random order begins with one of three long texts: each text's lines are
 * neighbours, the groups come in the order of their first lines, and so do the lines of a group. */
static void shared_prefixes_are_neighbours(void **state)
{
    static char text[1000 * 8200];
    static uint32_t kind_of[1000];
    size_t n = 0;
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t kind = (uint32_t)(seed >> 33) % 9;
        kind_of[i] = kind;
        n += (size_t)sprintf(text + n,
                             "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":"
                             "{\"max_tokens\":%d,\"messages\":[{\"role\":\"system\",%s\"content\":\"",
                             i, i, kind == 0 && i % 2 ? " " : ""); /* blanks do not matter */
        for (int k = 0; kind < 3 && k < 6000; k++)
            text[n++] = (char)('a' + ((unsigned)k * 7 + (k > 5000 ? kind : 0)) % 26);
        n += (size_t)sprintf(text + n, "%d\"}]}}\n", i * 7919 % 1000);
    }
    text[n] = '\0';
    struct bulk_input *in = open_text(text);
    const uint32_t *order = bulk_input_order(in);
    bool seen[1000] = {false};
    uint32_t n_changes[3] = {0}, first[3] = {0};
    for (int i = 0; i < 1000; i++) {
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        const uint32_t kind = kind_of[order[i]];
        if (kind < 3 && (i == 0 || kind_of[order[i - 1]] != kind)) {
            n_changes[kind]++;
            first[kind] = (uint32_t)i;
        } else if (kind < 3) {
            assert_true(order[i] > order[i - 1]);
        }
    }
    for (uint32_t kind = 0; kind < 3; kind++) {
        uint32_t lowest = 0;
        while (kind_of[lowest] != kind)
            lowest++;
        assert_int_equal(n_changes[kind], 1);
        assert_int_equal(order[first[kind]], lowest);
    }
    bulk_input_close(in);
}

/* Without common beginnings nothing moves. */
static void other_lines_keep_their_order(void **state)
{
    static char text[400 * 200];
    size_t n = 0;
    (void)state;
    for (int i = 0; i < 400; i++)
        n += (size_t)sprintf(text + n,
                             LINE("%d", "%d is a number that begins a prompt, and the prompt is not short") "\n", i,
                             i * 7919 % 400 + 1000);
    struct bulk_input *in = open_text(text);
    for (uint32_t i = 0; i < 400; i++)
        assert_int_equal(bulk_input_order(in)[i], i);
    bulk_input_close(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_blanks),
        cmocka_unit_test(a_repeated_custom_id),
        cmocka_unit_test(long_lines_are_parsed_once),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(a_long_line_and_a_cut_file),
        cmocka_unit_test(the_digest_names_bytes_and_kind),
        cmocka_unit_test(shared_prefixes_are_neighbours),
        cmocka_unit_test(other_lines_keep_their_order),
    };
    if (quire_hash_init() != 0)
        return 1;
    snprintf(path, sizeof path, "/tmp/bulk_input_%d", (int)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
