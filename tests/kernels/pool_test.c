/* The thread pool: each task runs once on every thread, what it wrote is seen, and an idle pool
 * sleeps. Run under TSan to prove the rest. */
#include "kernels/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct tally { /* plain memory on purpose: the pool must order the accesses */
    uint32_t calls[8];
    uint32_t n_threads;
    uint64_t sum;
    uint64_t parts[8];
};

static void count(void *context, uint32_t thread, uint32_t n_threads)
{
    struct tally *t = context;
    t->calls[thread]++;
    if (thread == 0)
        t->n_threads = n_threads;
    uint64_t begin, end;
    k_pool_share(1000, thread, n_threads, &begin, &end);
    t->parts[thread] = 0;
    for (uint64_t i = begin; i < end; i++)
        t->parts[thread] += i;
}

static void run_and_check(struct k_pool *pool, struct tally *t, uint32_t n_threads, uint32_t calls)
{
    k_pool_run(pool, count, t);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_threads; i++) {
        assert_int_equal(t->calls[i], calls);
        sum += t->parts[i];
    }
    assert_int_equal(t->n_threads, n_threads);
    assert_int_equal(sum, 999 * 1000 / 2);
}

static void test_runs_on_every_thread(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct k_pool *pool;
        struct tally t = {0};
        assert_int_equal(k_pool_create(n, &pool, NULL), QUIRE_OK);
        assert_int_equal(k_pool_n_threads(pool), n);
        uint32_t calls = 0;
        for (int step = 0; step < 60; step++) {
            if (step % 3 != 2) /* also outside a step */
                k_pool_step_begin(pool);
            for (int task = 0; task < step % 7; task++)
                run_and_check(pool, &t, n, ++calls);
            if (step % 10 == 9)
                usleep(200); /* past the spinning */
            run_and_check(pool, &t, n, ++calls);
            k_pool_step_end(pool);
            if (step % 20 == 19)
                usleep(500);
        }
        k_pool_destroy(pool);
    }
}

/* Thread 0 or the last one is late, so that the others sleep on both sides. */
static void late(void *context, uint32_t thread, uint32_t n_threads)
{
    uint32_t *calls = context;
    if (thread == (calls[0] % 2 ? 0 : n_threads - 1))
        usleep(1000);
    calls[1 + thread]++;
}

static void test_late_threads(void **state)
{
    (void)state;
    struct k_pool *pool;
    assert_int_equal(k_pool_create(3, &pool, NULL), QUIRE_OK);
    uint32_t calls[4] = {0};
    for (uint32_t i = 0; i < 20; i++) {
        if (i % 5 == 0)
            k_pool_step_begin(pool);
        calls[0] = i;
        k_pool_run(pool, late, calls);
        if (i % 5 == 4)
            k_pool_step_end(pool);
        for (uint32_t t = 1; t <= 3; t++)
            assert_int_equal(calls[t], i + 1);
    }
    k_pool_destroy(pool);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 200 ms of nothing cost less than 5 ms of processor time, between steps and within one whose owner
 * is busy elsewhere. */
static void test_idle_pool_sleeps(void **state)
{
    (void)state;
    struct k_pool *pool;
    struct tally t = {0};
    assert_int_equal(k_pool_create(3, &pool, NULL), QUIRE_OK);
    for (uint32_t in_step = 0; in_step < 2; in_step++) {
        k_pool_step_begin(pool);
        run_and_check(pool, &t, 3, in_step + 1);
        if (!in_step)
            k_pool_step_end(pool);
        double before = cpu_seconds();
        usleep(200000);
        assert_true(cpu_seconds() - before < 0.005);
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
                k_pool_share(n, i, threads, &begin, &end);
                assert_true(begin == at && end - begin <= n / threads + 1);
            }
            assert_int_equal(at, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_on_every_thread),
        cmocka_unit_test(test_late_threads),
        cmocka_unit_test(test_idle_pool_sleeps),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
