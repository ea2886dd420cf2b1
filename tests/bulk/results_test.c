/* The results of a batch: once each, over killed processes and full disks. */
#include "base/hash.h"
#include "server/bulk/run/results_db.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGEST UINT64_C(0xfedcba9876543210)
#define ALL ((1u << BULK_OUTCOMES) - 1)

static char path[64];

static void remove_all(void)
{
    char name[96];
    static const char *const ends[] = {"", "-wal", "-shm", ".out"};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static int begin_test(void **state)
{
    (void)state;
    remove_all();
    return 0;
}

static struct bulk_results *open_lines(uint32_t n)
{
    struct bulk_results *r;
    struct quire_error err = {.text = ""};
    if (bulk_results_open(path, DIGEST, n, &r, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return r;
}

static void put(struct bulk_results *r, uint32_t line, enum bulk_outcome outcome, size_t n_pad)
{
    static char text[70000];
    const struct bulk_tokens tokens = {10, 4, 2, 1000000000000};
    struct quire_error err;
    const int n = snprintf(text, sizeof text, "{\"line\":%u,\"pad\":\"%0*d\"}", line, (int)n_pad, 0);
    assert_int_equal(bulk_results_put(r, line, outcome, text, (size_t)n, &tokens, &err), QUIRE_OK);
}

/* The output's line numbers; -1 ends them. */
static void check_output(struct bulk_results *r, unsigned outcomes, const int *lines)
{
    char text[256], name[96];
    struct quire_error err;
    snprintf(name, sizeof name, "%s.out", path);
    FILE *file = fopen(name, "w+");
    assert_int_equal(bulk_results_write(r, outcomes, file, &err), QUIRE_OK);
    rewind(file);
    for (; *lines >= 0; lines++) {
        assert_non_null(fgets(text, sizeof text, file));
        assert_int_equal(atoi(strchr(text, ':') + 1), *lines);
    }
    assert_null(fgets(text, sizeof text, file));
    fclose(file);
}

static void rows_counts_and_order(void **state)
{
    struct bulk_results *r = open_lines(20);
    struct bulk_counts counts;
    struct quire_error err;
    (void)state;
    put(r, 19, BULK_SUCCEEDED, 1);
    put(r, 3, BULK_ERRORED, 1);
    put(r, 8, BULK_SUCCEEDED, 1);
    put(r, 8, BULK_ERRORED, 1); /* the first stays */
    put(r, 4, BULK_CANCELLED, 1);
    assert_true(bulk_results_has(r, 8) && !bulk_results_has(r, 9));
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_OK);
    check_output(r, 1u << BULK_SUCCEEDED, (const int[]){8, 19, -1});
    check_output(r, ALL & ~(1u << BULK_SUCCEEDED), (const int[]){3, 4, -1});
    bulk_results_close(r);
    r = open_lines(20);
    bulk_results_count(r, &counts);
    assert_int_equal(counts.n_lines, 20);
    assert_int_equal(counts.n_done, 4);
    assert_int_equal(counts.n[BULK_SUCCEEDED], 2);
    assert_int_equal(counts.n[BULK_ERRORED], 1);
    assert_int_equal(counts.input_tokens, 40);
    assert_int_equal(counts.cached_tokens, 16);
    assert_int_equal(counts.output_tokens, 8);
    assert_true(counts.cost == 4000000000000);
    put(r, 8, BULK_ERRORED, 1);
    put(r, 0, BULK_EXPIRED, 1);
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_OK);
    check_output(r, ALL, (const int[]){0, 3, 4, 8, 19, -1});
    bulk_results_close(r);
}

static void refuse(const char *says, uint64_t digest, uint32_t n_lines, int expected)
{
    struct bulk_results *r;
    struct quire_error err = {.text = ""};
    assert_int_equal(bulk_results_open(path, digest, n_lines, &r, &err), expected);
    assert_null(r);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
}

static void set_pragma(const char *text)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void files_of_others(void **state)
{
    struct bulk_results *r = open_lines(5);
    (void)state;
    put(r, 2, BULK_SUCCEEDED, 1);
    refuse("is in use by another process", DIGEST, 5, QUIRE_IO);
    bulk_results_close(r);
    refuse("results of another input", DIGEST + 1, 5, QUIRE_INVALID);
    refuse("results of another input", DIGEST, 6, QUIRE_INVALID);
    set_pragma("INSERT INTO results VALUES(77, 0, 0, 0, 0, 0, x'00')");
    refuse("malformed", DIGEST, 5, QUIRE_IO);
    set_pragma("DELETE FROM results WHERE line = 77; PRAGMA user_version=2");
    refuse("has version 2", DIGEST, 5, QUIRE_INVALID);
    set_pragma("PRAGMA user_version=1; PRAGMA application_id=5");
    refuse("belongs to another program", DIGEST, 5, QUIRE_INVALID);
    FILE *file = fopen(path, "w");
    fputs("not a database, but long enough to be looked at as one: 0123456789 0123456789 0123456789 0123456789 01234",
          file);
    fclose(file);
    refuse("not a database", DIGEST, 5, QUIRE_IO);
    remove_all();
    assert_int_equal(symlink("/tmp", path), 0);
    refuse("", DIGEST, 5, QUIRE_IO);
}

/* ---- killed processes ----------------------------------------------------------------------- */

#define N_KILLED 3000

/* The child puts lines that have none, and reports each count of written rows; it is killed at some moment. */
static void work_until_killed(unsigned delay_us)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bulk_results *r;
        struct quire_error err;
        if (bulk_results_open(path, DIGEST, N_KILLED, &r, &err) != QUIRE_OK)
            _exit(3);
        for (uint32_t i = 0; i < N_KILLED; i++) {
            char text[64];
            const int n = snprintf(text, sizeof text, "{\"line\":%u}", i);
            if (!bulk_results_has(r, i))
                bulk_results_put(r, i, BULK_SUCCEEDED, text, (size_t)n, NULL, &err);
            if (i % 50 == 0 && bulk_results_flush(r, &err) != QUIRE_OK)
                _exit(4);
        }
        for (;;)
            pause();
    }
    int status;
    usleep(delay_us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status)); /* it did not fail */
}

static void each_line_once_over_kills(void **state)
{
    static int lines[N_KILLED + 1];
    (void)state;
    uint32_t before = 0;
    for (unsigned i = 0; i < 10; i++) {
        struct bulk_counts counts;
        work_until_killed(1000 + i * 7000);
        struct bulk_results *r = open_lines(N_KILLED);
        bulk_results_count(r, &counts);
        assert_true(counts.n_done >= before); /* what was committed stays */
        before = counts.n_done;
        bulk_results_close(r);
    }
    struct bulk_results *r = open_lines(N_KILLED);
    struct quire_error err;
    for (uint32_t i = 0; i < N_KILLED; i++) {
        if (!bulk_results_has(r, i))
            put(r, i, BULK_SUCCEEDED, 1);
        lines[i] = (int)i;
    }
    lines[N_KILLED] = -1;
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_OK);
    check_output(r, ALL, lines);
    bulk_results_close(r);
}

/* ---- a full disk ---------------------------------------------------------------------------- */

/* A limit of a file's size fails as a full disk does. Rows wait, hold back new lines, and are written once there is space. */
static void a_full_disk(void **state)
{
    struct rlimit old, low;
    struct quire_error err;
    struct bulk_counts counts;
    uint32_t n = 0;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    struct bulk_results *r = open_lines(2000);
    put(r, n++, BULK_SUCCEEDED, 1);
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 200000;
    setrlimit(RLIMIT_FSIZE, &low);
    for (; !bulk_results_is_full(r) && n < 2000; n++)
        put(r, n, BULK_SUCCEEDED, 65000);
    assert_true(n > 900 && n < 1200); /* 64 MiB */
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_IO);
    assert_non_null(strstr(err.text, "results cannot be written"));
    assert_true(bulk_results_is_full(r));
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(bulk_results_flush(r, &err), QUIRE_OK);
    assert_false(bulk_results_is_full(r));
    bulk_results_close(r);
    r = open_lines(2000);
    bulk_results_count(r, &counts);
    assert_int_equal(counts.n_done, n);
    bulk_results_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(rows_counts_and_order, begin_test),
        cmocka_unit_test_setup(files_of_others, begin_test),
        cmocka_unit_test_setup(each_line_once_over_kills, begin_test),
        cmocka_unit_test_setup(a_full_disk, begin_test),
    };
    if (quire_hash_init() != 0)
        return 1;
    snprintf(path, sizeof path, "/tmp/bulk_results_%d", (int)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_all();
    return failed;
}
