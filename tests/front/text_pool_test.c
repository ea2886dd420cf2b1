/* The text pool under cancelling from the loop while its threads work: run under the sanitizers
 * too. */
#include "server/front/body/text_pool.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#define N_JOBS 20000

struct test_job {
    struct text_job job;
    int value;
};

static struct event_base *base;
static int n_done, n_released;

static void work(struct text_job *job)
{
    struct test_job *t = (struct test_job *)job;
    for (int i = 0; i < 100; i++)
        t->value += i;
}

static void done(struct text_job *job)
{
    struct test_job *t = (struct test_job *)job;
    assert_int_equal(t->value, 4950);
    free(t);
    if (++n_done + n_released == N_JOBS)
        event_base_loopbreak(base);
}

static void release(struct text_job *job)
{
    free(job);
    if (++n_released + n_done == N_JOBS)
        event_base_loopbreak(base);
}

static struct text_job *new_job(void)
{
    struct test_job *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->job = (struct text_job){.work = work, .done = done, .release = release};
    return &t->job;
}

/* Every job is done or released, once. A job may be cancelled only before done() was called for
 * it, and done() is only called by the loop: so here, right after it was submitted. */
static void every_job_ends_once(void **state)
{
    struct text_pool *pool;
    (void)state;
    n_done = n_released = 0;
    assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
    srand(4);
    for (int i = 0; i < N_JOBS; i++) {
        struct text_job *job = new_job();
        text_pool_submit(pool, job);
        for (volatile int spin = rand() % 2000; spin > 0; spin--) {
        }
        if (i % 3 == 0)
            text_pool_cancel(pool, job);
        if (i % 64 == 0)
            event_base_loop(base, EVLOOP_NONBLOCK);
    }
    if (n_done + n_released < N_JOBS)
        event_base_dispatch(base);
    assert_int_equal(n_done + n_released, N_JOBS);
    assert_true(n_released <= N_JOBS / 3 + 1);
    text_pool_close(pool);
}

static void closing_releases_what_is_left(void **state)
{
    struct text_pool *pool;
    (void)state;
    n_done = n_released = 0;
    assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
    for (int i = 0; i < 1000; i++)
        text_pool_submit(pool, new_job());
    text_pool_close(pool);
    assert_int_equal(n_done, 0);
    assert_int_equal(n_released, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_ends_once),
        cmocka_unit_test(closing_releases_what_is_left),
    };
    base = event_base_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    event_base_free(base);
    return failed;
}
