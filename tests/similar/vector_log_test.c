/* A file of vectors: reading back; torn, damaged and foreign files; zeros at the end; rewrites; a killed process. */
#include "server/similar/vector_log.h"
#include "server/similar/vector_records.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define N 5u
#define LATER INT64_C(4000000000000)

static char path[64];
static const struct key256 identity = {{7}}, around = {{9}};

struct seen {
    uint32_t n_told, n_vectors, last;
    bool there[30000];
};

static struct key256 key_of(uint32_t i)
{
    struct key256 k = {{0}};
    memcpy(k.bytes + 4, &i, sizeof i);
    return k;
}

static void see(void *context, const struct key256 *of, const float *vector, const struct key256 *answer,
                int64_t expires_ms)
{
    struct seen *seen = context;
    uint32_t i;
    memcpy(&i, answer->bytes + 4, sizeof i);
    assert_true(i < 30000);
    seen->n_told++;
    seen->there[i] = vector;
    seen->n_vectors += vector != NULL;
    seen->last = i;
    if (vector)
        assert_true(memcmp(of, &around, sizeof around) == 0 && vector[0] == (float)i && vector[N - 1] == -0.5f &&
                    (expires_ms == LATER || expires_ms == 1));
}

static void add(struct vector_log *l, uint32_t i, int64_t expires_ms)
{
    const float v[N] = {(float)i, 1, 2, 3, -0.5f};
    const struct key256 answer = key_of(i);
    vector_log_add(l, &around, v, &answer, expires_ms);
}

static struct vector_log *opened(struct seen *seen)
{
    struct vector_log *l;
    struct quire_error err = {.text = ""};
    memset(seen, 0, sizeof *seen);
    if (vector_log_open(path, &identity, N, 1000, see, seen, &l, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return l;
}

static struct seen seen;

static long size_of(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (long)st.st_size;
}

static void told_again(void **state)
{
    (void)state;
    struct vector_log *l = opened(&seen), *other;
    struct quire_error err;
    struct stat st;
    assert_int_equal(seen.n_told, 0);
    assert_int_equal(vector_log_open(path, &identity, N, 9, see, &seen, &other, &err), QUIRE_EXHAUSTED);
    for (uint32_t i = 0; i < 20; i++)
        add(l, i, LATER);
    const struct key256 gone = key_of(3);
    vector_log_remove(l, &gone);
    vector_log_close(l);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    l = opened(&seen);
    assert_true(seen.n_told == 21 && seen.n_vectors == 20 && seen.there[2] && !seen.there[3]);
    vector_log_clear(l);
    add(l, 4, LATER);
    vector_log_close(l);
    vector_log_close(opened(&seen));
    assert_true(seen.n_told == 1 && seen.there[4]);
}

/* Every length of the file: cut at will it holds its whole records. One byte that is another: it is refused, or was torn. */
static void torn_and_damaged(void **state)
{
    (void)state;
    uint8_t bytes[VECTOR_HEAD_BYTES + 400];
    struct quire_error err;
    const size_t one = vector_record_bytes(N), n = VECTOR_HEAD_BYTES + 2 * one + VECTOR_GONE_BYTES;
    struct vector_log *l = opened(&seen);
    vector_log_clear(l);
    add(l, 1, LATER);
    add(l, 2, LATER);
    const struct key256 gone = key_of(1);
    vector_log_remove(l, &gone);
    vector_log_close(l);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), n);
    fclose(f);
    size_t whole;
    for (size_t cut = 0; cut <= n; cut++) {
        const int status = vector_records_check(bytes, cut, &identity, N, &whole, &err);
        assert_int_equal(status, cut < VECTOR_HEAD_BYTES ? QUIRE_INVALID : QUIRE_OK);
        const size_t past = cut - VECTOR_HEAD_BYTES;
        if (status == QUIRE_OK)
            assert_int_equal(whole, past >= 2 * one ? VECTOR_HEAD_BYTES + 2 * one + (cut == n ? VECTOR_GONE_BYTES : 0)
                                                    : VECTOR_HEAD_BYTES + past / one * one);
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        assert_int_equal(vector_records_check(bytes, n, &identity, N, &whole, &err), QUIRE_INVALID);
        bytes[i] ^= 0x10;
    }
    const struct key256 foreign = {{8}};
    assert_int_equal(vector_log_open(path, &foreign, N, 9, see, &seen, &l, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(vector_log_open(path, &identity, N + 1, 9, see, &seen, &l, &err), QUIRE_INVALID);
    assert_int_equal(size_of(), (long)n);
    assert_int_equal(truncate(path, (off_t)(n - 5)), 0);
    l = opened(&seen);
    assert_true(seen.n_told == 2);
    assert_int_equal(size_of(), (long)(n - VECTOR_GONE_BYTES));
    vector_log_close(l);
}

static void count(void *context, const struct key256 *of, const float *vector, const struct key256 *answer,
                  int64_t expires_ms)
{
    (void)of, (void)vector, (void)answer, (void)expires_ms;
    ++*(uint32_t *)context;
}

/* Zeros from any place of the last record on, or behind it, to any length: it is cut off, and so are they. Zeros with something
 * behind them are damage. */
static void ends_in_zeros(void **state)
{
    (void)state;
    static uint8_t bytes[VECTOR_HEAD_BYTES + 10000];
    const float v[N] = {1, 2, 3, 4, 5};
    const size_t one = vector_record_bytes(N), n = VECTOR_HEAD_BYTES + 3 * one, last = n - one;
    static const size_t further[] = {0, 1, 7, 8, 47, 48, 88, 4096, 9000};
    struct buffer records = {0};
    struct quire_error err;
    size_t whole;
    vector_records_head(&records, &identity, N);
    for (uint32_t i = 0; i < 3; i++)
        vector_records_add(&records, &around, v, N, &(struct key256){{(uint8_t)i}}, LATER);
    assert_true(!records.failed && records.n == n && records.data[n - 1] != 0);
    for (size_t k = 0; k < sizeof further / sizeof further[0]; k++)
        for (size_t from = last; from <= n; from++) {
            memset(bytes, 0, sizeof bytes);
            memcpy(bytes, records.data, from);
            if (from == n && further[k] == 0)
                continue;
            assert_int_equal(vector_records_check(bytes, n + further[k], &identity, N, &whole, &err), QUIRE_OK);
            assert_int_equal(whole, from == n ? n : last);
            if (further[k] == 0)
                continue;
            bytes[n + further[k] - 1] = 1; /* only fewer bytes than a record begins with are torn in any case */
            assert_int_equal(vector_records_check(bytes, n + further[k], &identity, N, &whole, &err),
                             from == n && further[k] < 8 ? QUIRE_OK : QUIRE_INVALID);
        }
    bytes[VECTOR_HEAD_BYTES + one - 1] ^= 1; /* a record that others follow */
    assert_int_equal(vector_records_check(bytes, n, &identity, N, &whole, &err), QUIRE_INVALID);
    FILE *f = fopen(path, "wb");
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(fwrite(records.data, 1, last + 30, f), last + 30);
    assert_int_equal(fwrite(bytes, 1, 5000, f), 5000);
    fclose(f);
    struct vector_log *l;
    uint32_t n_told = 0;
    assert_int_equal(vector_log_open(path, &identity, N, 1000, count, &n_told, &l, &err), QUIRE_OK);
    vector_log_close(l);
    assert_int_equal(n_told, 2);
    assert_int_equal(size_of(), (long)last);
    buffer_free(&records);
    unlink(path);
}

static void written_anew(void **state)
{
    (void)state;
    struct vector_log *l = opened(&seen);
    struct vector_log_stats stats;
    vector_log_clear(l);
    for (uint32_t i = 0; i < 25000; i++) {
        add(l, i % 2500, i % 5 ? LATER : 1);
        if (i % 100 == 99)
            usleep(100); /* so that the thread comes to it in between */
    }
    const struct key256 gone = key_of(2499);
    vector_log_remove(l, &gone);
    vector_log_close(l);
    l = opened(&seen);
    const uint32_t before = seen.n_told;
    for (uint32_t i = 0; i < 20000; i++) /* in any case once more */
        add(l, i % 2500, i % 5 ? LATER : 1);
    vector_log_remove(l, &gone);
    vector_log_stats(l, &stats);
    vector_log_close(l);
    vector_log_close(opened(&seen));
    assert_true(before < 25000 && seen.n_told < 20000 && !seen.there[2499] && seen.there[2498]);
    char fresh[80];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    assert_int_not_equal(access(fresh, F_OK), 0);
}

/* After a kill the file holds the records from the first to some record, without a gap. */
static void killed(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        unlink(path);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            static struct seen none;
            struct vector_log *l = opened(&none);
            for (uint32_t i = 0;; i++) {
                add(l, i % 30000, LATER);
                if (i % 64 == 0)
                    usleep(1);
            }
        }
        usleep(5000 + 7000 * (unsigned)round);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        vector_log_close(opened(&seen));
        if (seen.n_told > 0 && seen.n_told < 1000)
            for (uint32_t i = 0; i < seen.n_told; i++)
                assert_true(seen.there[i]);
    }
}

int main(void)
{
    char folder[] = "/tmp/quire-vectors-XXXXXX";
    if (quire_hash_init() != 0 || !mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/vectors", folder);
    const struct CMUnitTest tests[] = {cmocka_unit_test(told_again), cmocka_unit_test(torn_and_damaged),
                                       cmocka_unit_test(ends_in_zeros), cmocka_unit_test(written_anew),
                                       cmocka_unit_test(killed)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    char fresh[80];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    unlink(fresh);
    rmdir(folder);
    return failed;
}
