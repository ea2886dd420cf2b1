#include "server/front/output/stop_strings.h"
#include "tests/front/front_unit_test.h"

#include <stdlib.h>
#include <string.h>

/* Pushes pieces; `shown` gets the output after each push, separated by '|'. */
struct run {
    char shown[512];
    size_t n;
    int found;
};

static void add(struct run *r, const char *text, size_t n)
{
    memcpy(r->shown + r->n, text, n);
    r->n += n;
    r->shown[r->n] = '\0';
}

static struct run feed(const char *const *stops, const char *const *pieces, bool include, size_t n_unarmed)
{
    struct stop_set *set = NULL;
    struct stop_holder h = {0};
    struct run r = {.found = -1};
    const char *out;
    size_t n_out;
    for (; *stops; stops++)
        assert_true(stop_set_add(&set, *stops, strlen(*stops)));
    for (size_t i = 0; pieces[i] && r.found < 0; i++) {
        r.found = stop_holder_push(&h, set, i >= n_unarmed, include, pieces[i], strlen(pieces[i]), &out, &n_out);
        add(&r, out, n_out);
        add(&r, "|", 1);
    }
    stop_holder_finish(&h, &out, &n_out);
    add(&r, out, n_out);
    stop_holder_free(&h);
    stop_set_free(set);
    return r;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CHECK(stops, pieces, include, expected_found, expected) \
    do { \
        struct run r_ = feed(stops, pieces, include, 0); \
        assert_string_equal(r_.shown, expected); \
        assert_int_equal(r_.found, expected_found); \
    } while (0)

static void cases(void **state)
{
    (void)state;
    CHECK(WORDS("END"), WORDS("some ", "text"), false, -1, "some |text|");
    CHECK(WORDS("END"), WORDS("some END text"), false, 0, "some |");
    CHECK(WORDS("END"), WORDS("some END text"), true, 0, "some END|");
    /* Across tokens: a possible beginning is held back. */
    CHECK(WORDS("END"), WORDS("a E", "N", "D b"), false, 0, "a |||");
    CHECK(WORDS("END"), WORDS("a E", "N", "X"), false, -1, "a ||ENX|");
    /* Held back until the end: it was not a stop string. */
    CHECK(WORDS("END"), WORDS("a EN"), false, -1, "a |EN");
    /* A beginning within a beginning. */
    CHECK(WORDS("aab"), WORDS("a", "a", "a", "b"), false, 0, "||a||");
    CHECK(WORDS("abab!"), WORDS("ababab", "!"), false, 0, "ab||");
    /* The first string to be complete wins, not the first in the list; of several, the longest. */
    CHECK(WORDS("xyz", "y"), WORDS("wxyz"), false, 1, "wx|");
    CHECK(WORDS("c", "abc"), WORDS("zabc"), false, 1, "z|");
    /* Empty pieces (half a character is held back elsewhere). */
    CHECK(WORDS("b"), WORDS("", "a", "", "b"), false, 0, "|a|||");
    CHECK(WORDS("\xc3\xa9"), WORDS("\xc3\xa8", "\xc3\xa9"), false, 0, "\xc3\xa8||");
}

static void unarmed(void **state)
{
    (void)state;
    /* A string that completes before stop strings count is text; one that completes later still stops. */
    struct run r = feed(WORDS("b"), WORDS("ab", "cb"), false, 1);
    assert_string_equal(r.shown, "ab|c|");
    assert_int_equal(r.found, 0);
    r = feed(WORDS("bc"), WORDS("ab", "c"), false, 1);
    assert_string_equal(r.shown, "a||");
    assert_int_equal(r.found, 0);
}

/* Finds the first position at which any string is complete, and the longest such string. */
static int naive(const char *text, const char *const *stops, size_t n_stops, size_t *cut)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        int best = -1;
        for (size_t i = 0; i < n_stops; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && memcmp(text + end - n, stops[i], n) == 0 && (best < 0 || n > strlen(stops[best])))
                best = (int)i;
        }
        if (best >= 0) {
            *cut = end - strlen(stops[best]);
            return best;
        }
    }
    *cut = strlen(text);
    return -1;
}

static void equals_the_naive_search_however_the_text_is_cut(void **state)
{
    (void)state;
    srand(3);
    int n_found = 0;
    for (int round = 0; round < 30000; round++) {
        char text[40], words[4][8];
        const char *stops[5] = {0};
        size_t n = (size_t)(rand() % 39), n_stops = (size_t)(1 + rand() % 4), cut;
        for (size_t i = 0; i < n; i++)
            text[i] = "ab"[rand() % 2];
        text[n] = '\0';
        for (size_t i = 0; i < n_stops; i++) {
            size_t length = (size_t)(1 + rand() % 7);
            for (size_t k = 0; k < length; k++)
                words[i][k] = "ab"[rand() % 2];
            words[i][length] = '\0';
            stops[i] = words[i];
        }
        struct stop_set *set = NULL;
        struct stop_holder h = {0};
        struct run r = {.found = -1};
        for (size_t i = 0; i < n_stops; i++)
            assert_true(stop_set_add(&set, stops[i], strlen(stops[i])));
        const char *out;
        size_t n_out;
        for (size_t at = 0; at < n && r.found < 0;) {
            size_t piece = (size_t)(rand() % 4);
            if (piece > n - at)
                piece = n - at;
            r.found = stop_holder_push(&h, set, true, false, text + at, piece, &out, &n_out);
            add(&r, out, n_out);
            at += piece;
            /* No part of a stop string may ever be shown. */
            if (r.found < 0)
                assert_true(naive(r.shown, stops, n_stops, &cut) < 0);
        }
        stop_holder_finish(&h, &out, &n_out);
        add(&r, out, n_out);
        int expected = naive(text, stops, n_stops, &cut);
        text[cut] = '\0';
        assert_string_equal(r.shown, text);
        assert_int_equal(r.found < 0, expected < 0);
        if (expected >= 0) {
            assert_string_equal(stops[r.found], stops[expected]);
            n_found++;
        }
        stop_holder_free(&h);
        stop_set_free(set);
    }
    assert_true(n_found > 1000 && n_found < 29000);
}

int run_stop_strings_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases),
        cmocka_unit_test(unarmed),
        cmocka_unit_test(equals_the_naive_search_however_the_text_is_cut),
    };
    return cmocka_run_group_tests_name("stop_strings", tests, NULL, NULL);
}
