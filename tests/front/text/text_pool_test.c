/* Tests the text pool when the loop cancels jobs while its threads run. The sanitizers run it, too. */
#include "server/front/text/text_pool.h"

#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define N_JOBS 20000

struct test_job {
    struct text_job job;
    int value, n_slices;
};

static struct event_base *base;
static int n_done, n_released;

/* Runs in two slices. */
static bool work(struct text_job *job)
{
    struct test_job *t = (struct test_job *)job;
    for (int i = 0; i < 50; i++)
        t->value += t->n_slices * 50 + i;
    return ++t->n_slices < 2;
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

static const struct text_job_calls calls = {.work = work, .done = done, .release = release};

static struct text_job *new_job(void)
{
    struct test_job *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->job = (struct text_job){.calls = &calls, .tenant = (uint32_t)rand() % 3, .n_bytes = (size_t)rand() % 3 << 19};
    return &t->job;
}

/* Every job is done or released, once. A job may be cancelled only before its done(), and only the loop calls
 * done(). So the test cancels here, right after submission. */
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

/* ---- turns ---------------------------------------------------------------------------------- */

/* The slices in the order in which one thread ran them. */
static char order[256];
static int n_order;
static atomic_int n_begun;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

struct named_job {
    struct text_job job;
    char name;
    int n_slices;
};

static bool named_work(struct text_job *job)
{
    struct named_job *t = (struct named_job *)job;
    atomic_fetch_add(&n_begun, 1);
    pthread_mutex_lock(&gate); /* closed until everything is submitted */
    pthread_mutex_unlock(&gate);
    order[n_order++] = t->name;
    return --t->n_slices > 0;
}

static bool ungated(struct text_job *job)
{
    (void)job;
    return false;
}

static void named_done(struct text_job *job)
{
    n_done++;
    (void)job;
}

static const struct text_job_calls ungated_calls = {.work = ungated, .done = named_done, .release = named_done};

static const struct text_job_calls named_calls = {.work = named_work, .done = named_done, .release = named_done};

/* name, tenant, bytes, slices */
static struct named_job named(char name, uint32_t tenant, size_t n_bytes, int n_slices)
{
    return (struct named_job){
        .job = {.calls = &named_calls, .tenant = tenant, .n_bytes = n_bytes}, .name = name, .n_slices = n_slices};
}

/* A job of another tenant occupies the thread until all of them wait. */
static const char *order_of(struct named_job *jobs, int n)
{
    struct named_job first = named('z', 3, 100, 1);
    struct text_pool *pool;
    assert_int_equal(text_pool_open(base, 1, &pool, NULL), 0);
    memset(order, 0, sizeof order);
    n_order = n_done = 0;
    atomic_store(&n_begun, 0);
    pthread_mutex_lock(&gate);
    text_pool_submit(pool, &first.job);
    while (atomic_load(&n_begun) == 0)
        usleep(100);
    for (int i = 0; i < n; i++)
        text_pool_submit(pool, &jobs[i].job);
    pthread_mutex_unlock(&gate);
    while (n_done < n + 1)
        event_base_loop(base, EVLOOP_ONCE);
    text_pool_close(pool);
    return order + 1;
}

#define LONG_BYTES ((size_t)15 << 20)

static void tenants_have_turns(void **state)
{
    (void)state;
    /* A's long text comes first, with more of A's jobs after it. B's job runs after one slice of A's, and A's own
     * short job after two. */
    struct named_job turns[] = {named('a', 1, LONG_BYTES, 6), named('s', 1, 100, 1), named('b', 2, 100, 1)};
    assert_string_equal(order_of(turns, 3), "abasaaaa");

    /* Only one long text runs at a time, whoever sent it. After A's first comes B's, not A's second. */
    struct named_job large[] = {named('a', 1, LONG_BYTES, 3), named('A', 1, LONG_BYTES, 2),
                                named('b', 2, LONG_BYTES, 2)};
    assert_string_equal(order_of(large, 3), "aaabbAA");

    /* A tenant has at most two medium-length texts in progress. */
    struct named_job medium[] = {named('1', 1, TEXT_MEDIUM_BYTES, 4), named('2', 1, TEXT_MEDIUM_BYTES, 4),
                                 named('3', 1, TEXT_MEDIUM_BYTES, 2), named('x', 2, TEXT_MEDIUM_BYTES, 2)};
    assert_string_equal(order_of(medium, 4), "1x1x21213232");
}

/* ---- jobs that grow ---- */

static atomic_int n_large;
static atomic_bool too_many;

/* Finds in its first slice that it is long; in the second and third it is one of the long ones. */
static bool growing(struct text_job *job)
{
    struct named_job *t = (struct named_job *)job;
    job->needs_bytes = LONG_BYTES;
    t->n_slices++;
    if (t->n_slices == 2 && atomic_fetch_add(&n_large, 1) > 0)
        atomic_store(&too_many, true);
    if (t->n_slices > 1)
        usleep(500);
    if (t->n_slices == 3)
        atomic_fetch_sub(&n_large, 1);
    return t->n_slices < 3;
}

static const struct text_job_calls growing_calls = {.work = growing, .done = named_done, .release = named_done};

static void a_job_that_grows_waits_for_its_turn(void **state)
{
    (void)state;
    struct named_job jobs[30];
    struct text_pool *pool;
    n_done = 0;
    assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
    for (uint32_t i = 0; i < 30; i++) {
        jobs[i] = named('a', i % 3, 100, 0);
        jobs[i].job.calls = &growing_calls;
        text_pool_submit(pool, &jobs[i].job);
    }
    while (n_done < 30)
        event_base_loop(base, EVLOOP_ONCE);
    text_pool_close(pool);
    assert_false(atomic_load(&too_many));
    for (int i = 0; i < 30; i++)
        assert_int_equal(jobs[i].job.n_bytes, LONG_BYTES);
}

static atomic_int n_endless;

static bool endless(struct text_job *job)
{
    (void)job;
    atomic_fetch_add(&n_endless, 1);
    return true;
}

/* One slice, until the three other jobs have begun. */
static bool endless_until_begun(struct text_job *job)
{
    (void)job;
    atomic_fetch_add(&n_endless, 1);
    while (atomic_load(&n_begun) < 3)
        usleep(100);
    return false;
}

static const struct text_job_calls endless_calls = {.work = endless, .done = named_done, .release = named_done};
static const struct text_job_calls until_begun_calls = {
    .work = endless_until_begun, .done = named_done, .release = named_done};

/* However long the slices of long jobs are, a short job still runs. */
static void one_thread_is_left_to_short_ones(void **state)
{
    (void)state;
    struct text_pool *pool;
    struct named_job stuck[] = {named('a', 0, LONG_BYTES, 1), named('b', 1, TEXT_MEDIUM_BYTES, 1),
                                named('c', 2, TEXT_MEDIUM_BYTES, 1)};
    struct named_job quick = named('q', 3, 100, 1);
    assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
    n_order = n_done = 0;
    quick.job.calls = &ungated_calls;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 3; i++)
        text_pool_submit(pool, &stuck[i].job);
    text_pool_submit(pool, &quick.job);
    while (n_done < 1)
        event_base_loop(base, EVLOOP_ONCE);
    pthread_mutex_unlock(&gate);
    while (n_done < 4)
        event_base_loop(base, EVLOOP_ONCE);
    text_pool_close(pool);
}

/* Slices may be long. A tenant that waits while another has a running slice comes first, whenever it came. */
static void idle_tenants_first(void **state)
{
    (void)state;
    for (int prefers = 0; prefers < 2; prefers++) {
        struct text_pool *pool;
        struct named_job held = named('h', 1, 100, 1), turning = named('t', 2, 100, 1), more = named('m', 1, 100, 1),
                         other = named('o', 3, 100, 1);
        assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
        if (prefers)
            text_pool_prefer_idle(pool);
        n_order = n_done = 0;
        atomic_store(&n_begun, 0);
        atomic_store(&n_endless, 0);
        held.job.calls = &until_begun_calls;
        memset(order, 0, sizeof order);
        pthread_mutex_lock(&gate);
        text_pool_submit(pool, &held.job);
        while (!atomic_load(&n_endless))
            usleep(100);
        text_pool_submit(pool, &turning.job);
        while (!atomic_load(&n_begun))
            usleep(100);
        text_pool_submit(pool, &more.job);
        text_pool_submit(pool, &other.job);
        pthread_mutex_unlock(&gate);
        while (n_done < 4)
            event_base_loop(base, EVLOOP_ONCE);
        text_pool_close(pool);
        assert_string_equal(order, prefers ? "tom" : "tmo");
    }
}

/* A cancelled job frees its slot for the next one, whether or not it has begun. */
static void cancelled_ones_make_space(void **state)
{
    (void)state;
    struct text_pool *pool;
    struct named_job jobs[] = {named('a', 0, LONG_BYTES, 1 << 30), named('b', 0, LONG_BYTES, 1),
                               named('c', 0, LONG_BYTES, 1)};
    assert_int_equal(text_pool_open(base, 1, &pool, NULL), 0);
    n_order = n_done = 0;
    jobs[0].job.calls = &endless_calls;
    for (int i = 0; i < 3; i++)
        text_pool_submit(pool, &jobs[i].job);
    while (!atomic_load(&n_endless))
        usleep(100);
    text_pool_cancel(pool, &jobs[1].job);
    text_pool_cancel(pool, &jobs[0].job);
    while (n_done < 3)
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n_order, 1);
    assert_int_equal(order[0], 'c');
    text_pool_close(pool);
}

/* close() waits for the end of the running slice, and for nothing else. */
static void closing_ends_what_has_begun(void **state)
{
    (void)state;
    struct text_pool *pool;
    struct named_job jobs[] = {named('a', 0, LONG_BYTES, 1), named('b', 1, 100, 1)};
    assert_int_equal(text_pool_open(base, 2, &pool, NULL), 0);
    n_done = 0;
    atomic_store(&n_endless, 0);
    for (int i = 0; i < 2; i++) {
        jobs[i].job.calls = &endless_calls;
        text_pool_submit(pool, &jobs[i].job);
    }
    while (!atomic_load(&n_endless))
        usleep(100);
    text_pool_close(pool);
    assert_int_equal(n_done, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_ends_once),
        cmocka_unit_test(closing_releases_what_is_left),
        cmocka_unit_test(tenants_have_turns),
        cmocka_unit_test(a_job_that_grows_waits_for_its_turn),
        cmocka_unit_test(one_thread_is_left_to_short_ones),
        cmocka_unit_test(cancelled_ones_make_space),
        cmocka_unit_test(closing_ends_what_has_begun),
        cmocka_unit_test(idle_tenants_first),
    };
    base = event_base_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    event_base_free(base);
    return failed;
}
