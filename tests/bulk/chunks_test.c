/* Texts in chunks: nothing is lost, the limits hold, and cuts are where people would make them. */
#include "app/map_reduce/chunks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned n_counts;

/* A token is a word of up to 6 bytes with the blanks before it, or one character of a long one. */
static int count(void *context, const char *text, size_t n, uint32_t *n_tokens, struct quire_error *err)
{
    uint32_t tokens = 0, in_word = 6;
    (void)context;
    (void)err;
    n_counts++;
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) == 0x80)
            continue;
        if (text[i] == ' ' || text[i] == '\n') {
            in_word = 6;
        } else if (in_word++ >= 6) {
            tokens++;
            in_word = 0;
        }
    }
    *n_tokens = tokens;
    return QUIRE_OK;
}

static void check(const char *text, uint32_t max_tokens, uint32_t overlap, size_t *n_out)
{
    const struct chunker c = {max_tokens, overlap, count, NULL};
    struct quire_error err = {.text = ""};
    struct chunk *chunks;
    size_t n, end = 0;
    n_counts = 0;
    if (chunks_cut(&c, text, strlen(text), &chunks, &n, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        uint32_t tokens;
        count(NULL, text + chunks[i].at, chunks[i].n_bytes, &tokens, NULL);
        n_counts--;
        assert_int_equal(tokens, chunks[i].n_tokens);
        assert_true(tokens <= max_tokens);
        assert_true(chunks[i].at <= end && chunks[i].at + chunks[i].n_bytes > end); /* no gap; it goes on */
        count(NULL, text + chunks[i].at, end - chunks[i].at, &tokens, NULL);
        n_counts--;
        assert_true(i == 0 || tokens <= overlap);
        assert_true(((unsigned char)text[chunks[i].at] & 0xc0) != 0x80);
        end = chunks[i].at + chunks[i].n_bytes;
        assert_true(((unsigned char)text[end] & 0xc0) != 0x80);
    }
    assert_int_equal(end, strlen(text));
    assert_true(n_counts <= 6 * n + 30);
    *n_out = n;
    free(chunks);
}

static void limits_and_coverage(void **state)
{
    static char text[60000];
    static const char *const words[] = {"a ",
                                        "sentence. ",
                                        "of ",
                                        "several ",
                                        "lines\n",
                                        "end.\n\n",
                                        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xb3 ",
                                        "averyveryverylongwordthathasnoblankatallinitandgoesonforever "};
    uint64_t seed = 3;
    size_t n = 0, n_chunks;
    (void)state;
    while (n < sizeof text - 100) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        n += (size_t)sprintf(text + n, "%s", words[(seed >> 40) % 8]);
    }
    static const uint32_t sizes[][2] = {{1000, 100}, {100, 10}, {100, 0}, {20, 9}, {3, 1}, {100000, 10}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check(text, sizes[i][0], sizes[i][1], &n_chunks);
    assert_int_equal(n_chunks, 1);
}

static void texts_without_blanks(void **state)
{
    static char text[30001];
    size_t n;
    (void)state;
    for (size_t i = 0; i < 10000; i++)
        memcpy(text + 3 * i, "\xe6\x96\x87", 3);
    check(text, 100, 10, &n);
    assert_true(n > 10);
    check("", 100, 10, &n);
    assert_int_equal(n, 0);
    check("x", 1, 0, &n);
    assert_int_equal(n, 1);
    check("\n\n\n \n", 1, 0, &n);
}

/* Paragraphs of 50 tokens: each chunk of at most 110 ends with one. */
static void cuts_at_paragraphs(void **state)
{
    static char text[20000];
    const struct chunker c = {110, 0, count, NULL};
    struct quire_error err;
    struct chunk *chunks;
    size_t n = 0, n_chunks;
    (void)state;
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 50; k++)
            n += (size_t)sprintf(text + n, "w%d%s", k, k == 49 ? ".\n\n" : k % 10 == 9 ? ". " : " ");
    }
    assert_int_equal(chunks_cut(&c, text, n, &chunks, &n_chunks, &err), QUIRE_OK);
    assert_true(n_chunks >= 10 && n_chunks <= 12);
    for (size_t i = 0; i < n_chunks; i++)
        assert_memory_equal(text + chunks[i].at + chunks[i].n_bytes - 2, "\n\n", 2);
    free(chunks);
}

static int many(void *context, const char *text, size_t n, uint32_t *n_tokens, struct quire_error *err)
{
    (void)context, (void)text, (void)err;
    *n_tokens = (uint32_t)n * 4;
    return QUIRE_OK;
}

static int fails(void *context, const char *text, size_t n, uint32_t *n_tokens, struct quire_error *err)
{
    (void)context, (void)text, (void)n, (void)n_tokens;
    return quire_fail(err, QUIRE_IO, "no server");
}

static void failures(void **state)
{
    struct chunker c = {3, 0, many, NULL};
    struct quire_error err;
    struct chunk *chunks;
    size_t n;
    (void)state;
    assert_int_equal(chunks_cut(&c, "abc", 3, &chunks, &n, &err), QUIRE_INVALID);
    assert_null(chunks);
    c.count = fails;
    assert_int_equal(chunks_cut(&c, "abc", 3, &chunks, &n, &err), QUIRE_IO);
    assert_string_equal(err.text, "no server");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_and_coverage),
        cmocka_unit_test(texts_without_blanks),
        cmocka_unit_test(cuts_at_paragraphs),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
