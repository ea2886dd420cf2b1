/* The thread pool: each piece runs once, on any thread; its writes are visible; the pool never waits for a thread that
 * has begun nothing; an idle pool sleeps. Also tests the account of whether workers are worthwhile. TSan checks the
 * rest. */
#include "base/clock.h"
#include "kernels/open.h"
#include "kernels/pool.h"
#include "kernels/pool_account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_PIECES 24u

struct tally { /* plain memory on purpose: the pool must order the accesses */
    uint32_t calls[MAX_PIECES];
    uint32_t count;
    uint64_t sums[MAX_PIECES];
};

static void count(void *context, struct k_piece piece)
{
    struct tally *t = context;
    t->calls[piece.index]++;
    if (piece.index == 0)
        t->count = piece.count;
    uint64_t begin, end, sum = 0;
    k_pool_share(1000, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        sum += i;
    t->sums[piece.index] = sum;
}

static void run_and_check(struct k_pool *pool, uint32_t n_pieces)
{
    struct tally t = {0};
    k_pool_run(pool, n_pieces, count, &t);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_pieces; i++) {
        assert_int_equal(t.calls[i], 1);
        sum += t.sums[i];
    }
    assert_int_equal(t.count, n_pieces);
    assert_int_equal(sum, 999 * 1000 / 2);
}

static void test_runs_every_piece(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct k_pool *pool;
        assert_int_equal(k_pool_create(n, &pool, NULL), QUIRE_OK);
        assert_int_equal(k_pool_n_threads(pool), n);
        for (uint32_t step = 0; step < 200; step++) {
            if (step % 3 != 2) /* also outside a step */
                k_pool_step_begin(pool);
            for (uint32_t task = 0; task < step % 7; task++)
                run_and_check(pool, 1 + (step + task) % MAX_PIECES);
            if (step % 40 == 39)
                usleep(200); /* longer than the spinning */
            run_and_check(pool, MAX_PIECES);
            k_pool_step_end(pool);
            if (step % 50 == 49)
                usleep(500);
        }
        k_pool_destroy(pool);
    }
}

static void note_thread(void *context, struct k_piece piece)
{
    uint32_t *calls = context;
    calls[piece.thread] += piece.index == piece.thread ? piece.count : 100;
}

static void test_runs_on_each_thread(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct k_pool *pool;
        uint32_t calls[4] = {0};
        assert_int_equal(k_pool_create(n, &pool, NULL), QUIRE_OK);
        for (uint32_t i = 1; i <= 20; i++) {
            k_pool_each(pool, note_thread, calls);
            for (uint32_t t = 0; t < n; t++)
                assert_int_equal(calls[t], i * n);
            run_and_check(pool, i);
        }
        k_pool_destroy(pool);
    }
}

#define PATIENCE_MS 30000u /* for an owner that runs, however seldom */

/* The worker is stopped in its first piece until the owner has run all others, and 20 ms more. */
static void stop_worker(void *context, struct k_piece piece)
{
    atomic_uint *n_by = context;
    const uint64_t until = quire_now_ms() + PATIENCE_MS;
    atomic_fetch_add(&n_by[piece.thread], 1);
    if (piece.thread == 0)
        return;
    while (atomic_load(&n_by[0]) < MAX_PIECES - 1 && quire_now_ms() < until)
        usleep(100);
    usleep(20000);
}

/* A worker that is stopped in a piece delays only that piece: the owner runs the others. The worker is then excluded
 * and delays nothing. A step without the worker takes less than 1 us, and a worker may need milliseconds for its first
 * piece, so the test ends after a time and not after a number of steps. */
static void test_stopped_worker(void **state)
{
    (void)state;
    struct k_pool *pool;
    uint32_t n_stops = 0, n_left_out = 0;
    assert_int_equal(k_pool_create(2, &pool, NULL), QUIRE_OK);
    const uint64_t begin = quire_now_ms();
    while (n_left_out < 20 && quire_now_ms() - begin < (n_stops == 0 ? PATIENCE_MS / 10 : 4 * PATIENCE_MS)) {
        atomic_uint n_by[2] = {0};
        k_pool_step_begin(pool);
        bool is_asked = k_pool_n_asked(pool) == 2;
        k_pool_run(pool, MAX_PIECES, stop_worker, n_by);
        k_pool_step_end(pool);
        assert_int_equal(n_by[0] + n_by[1], MAX_PIECES);
        assert_true(n_by[1] <= (is_asked ? 1 : 0));
        n_stops += n_by[1];
        n_left_out += !is_asked && n_stops > 0;
    }
    assert_true(n_stops == 0 || n_left_out == 20); /* 0: this machine had no CPU for the worker */
    k_pool_destroy(pool);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 200 ms of idling cost less than a tenth of that in processor time, between steps and within a step whose owner is busy
 * elsewhere. A worker that ran late still spins when the time begins, and a virtual machine may count time that it lost,
 * so one interval of many is enough: a pool that does not sleep has none. */
static void test_idle_pool_sleeps(void **state)
{
    (void)state;
    struct k_pool *pool;
    assert_int_equal(k_pool_create(3, &pool, NULL), QUIRE_OK);
    for (uint32_t in_step = 0; in_step < 2; in_step++) {
        k_pool_step_begin(pool);
        run_and_check(pool, MAX_PIECES);
        if (!in_step)
            k_pool_step_end(pool);
        const uint64_t until = quire_now_ms() + PATIENCE_MS;
        bool is_asleep = false;
        while (!is_asleep && quire_now_ms() < until) {
            const double before = cpu_seconds();
            usleep(200000);
            is_asleep = cpu_seconds() - before < 0.02;
        }
        assert_true(is_asleep);
        k_pool_step_end(pool);
    }
    k_pool_destroy(pool);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    struct k_pool *pool;
    struct quire_error err;
    assert_int_equal(k_pool_create(0, &pool, &err), QUIRE_INVALID);
    assert_null(pool);
    assert_int_equal(k_pool_create(K_MAX_THREADS + 1, &pool, &err), QUIRE_INVALID);
    k_pool_destroy(NULL);
    assert_true(k_default_threads() >= 1);
}

static void test_share(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        for (uint32_t threads = 1; threads < 9; threads++) {
            uint64_t at = 0, begin, end;
            for (uint32_t i = 0; i < threads; i++, at = end) {
                k_pool_share(n, (struct k_piece){i, threads, 0}, &begin, &end);
                assert_true(begin == at && end - begin <= n / threads + 1);
            }
            assert_int_equal(at, n);
        }
    }
}

#define MS 1000000u

/* The savings by workers must cover their cost, and at most a few time slices of savings are kept. */
static void test_account_keeps_who_pays(void **state)
{
    (void)state;
    struct pool_account a;
    pool_account_open(&a, 2);
    for (uint32_t i = 0; i < 1000; i++)
        pool_account_enter(&a, MS, i % 10 == 9 ? 5 * MS : 0, i * MS);
    assert_int_equal(a.n_asked, 2);
    pool_account_enter(&a, 0, 50 * MS, 1000 * MS);
    assert_int_equal(a.n_asked, 1);
}

/* Next to a process that stops the worker for 4 ms on each trial, 98 % of the time passes without the worker. */
static void test_account_leaves_out(void **state)
{
    (void)state;
    struct pool_account a;
    uint64_t now = 0, lost = 0, n_tries = 0;
    pool_account_open(&a, 2);
    while (now < 20000ull * MS) {
        if (a.n_asked == 2) {
            pool_account_enter(&a, 0, 4 * MS, now += 4 * MS);
            lost += 4 * MS;
            n_tries++;
        } else {
            pool_account_try(&a, now += MS);
        }
    }
    assert_true(n_tries >= 10);
    assert_true(lost < now / 50);
    for (; a.n_asked == 1; now += MS) /* the other process is gone: the worker is tried again within a second */
        pool_account_try(&a, now);
    assert_true(now <= 21001ull * MS);
    for (uint32_t i = 0; i < 20; i++)
        pool_account_enter(&a, MS, 0, now += MS);
    pool_account_enter(&a, 0, 8 * MS, now);
    assert_int_equal(a.n_asked, 2);
}

/* Many threads: a few at a time are excluded, and used again later. */
static void test_account_of_many(void **state)
{
    (void)state;
    struct pool_account a;
    pool_account_open(&a, 64);
    pool_account_enter(&a, 0, 4 * MS, MS);
    assert_int_equal(a.n_asked, 48);
    for (uint32_t i = 0; i < 100; i++)
        pool_account_enter(&a, 0, 4 * MS, MS);
    assert_int_equal(a.n_asked, 1);
    for (uint64_t now = 0; a.n_asked < 64; now += MS) {
        pool_account_try(&a, now);
        assert_true(now < 2000ull * MS && a.n_asked <= 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_every_piece),
        cmocka_unit_test(test_runs_on_each_thread),
        cmocka_unit_test(test_stopped_worker),
        cmocka_unit_test(test_idle_pool_sleeps),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_account_keeps_who_pays),
        cmocka_unit_test(test_account_leaves_out),
        cmocka_unit_test(test_account_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
