/* The trace file of a process that was killed: closed and kept, wherever its last write ended. */
#include "app/watch/timeline_keep.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FIRST TIMELINE_BEGIN "\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"engine\"}}"
#define EVENT ",\n{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":7,\"args\":{\"tokens\":3}}"

static char directory[] = "/tmp/timeline_keep_XXXXXX";
static char path[64], kept_path[80];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/trace.json", directory);
    snprintf(kept_path, sizeof kept_path, "%s.unfinished", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(kept_path);
    return rmdir(directory);
}

static void write_file(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static bool keep(void)
{
    struct quire_error err;
    bool kept;
    if (timeline_keep(path, &kept, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return kept;
}

/* Cut at each byte after the first event, and far beyond the tail that is read: every whole event stays. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    const size_t n_first = strlen(FIRST), n_event = strlen(EVENT);
    for (size_t n_whole = 0; n_whole <= 120; n_whole += 60)
        for (size_t n_torn = 0; n_torn < n_event; n_torn++) {
            char *text = malloc(n_first + (n_whole + 1) * n_event + 1), *at = stpcpy(text, FIRST);
            for (size_t i = 0; i <= n_whole; i++)
                at = stpcpy(at, EVENT);
            write_file(text, n_first + n_whole * n_event + n_torn);
            free(text);
            assert_true(keep());
            assert_int_equal(access(path, F_OK), -1);
            json_t *events = json_load_file(kept_path, 0, NULL);
            assert_non_null(events);
            assert_int_equal(json_array_size(events), 1 + n_whole);
            json_decref(events);
        }
}

static void test_others_stay(void **state)
{
    (void)state;
    const char *const texts[] = {FIRST "\n]\n", FIRST EVENT "\n]\n", "", "[", "[\n", "a letter to a friend {}\n",
                                 TIMELINE_BEGIN};
    unlink(kept_path);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char again[512] = "";
        write_file(texts[i], strlen(texts[i]));
        assert_false(keep());
        FILE *f = fopen(path, "r");
        assert_int_equal(fread(again, 1, sizeof again - 1, f), strlen(texts[i]));
        fclose(f);
        assert_string_equal(again, texts[i]);
        assert_int_equal(access(kept_path, F_OK), -1);
    }
    unlink(path);
    assert_false(keep());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(keep());
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_others_stay)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
