#include "server/front/tenant/bucket.h"
#include "server/front/tenant/limits.h"
#include "tests/front/front_unit_test.h"

#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000)

static void a_bucket_fills_at_its_rate(void **state)
{
    (void)state;
    struct bucket b;
    uint64_t now = 5 * SECOND;
    bucket_init(&b, 60, now);
    assert_int_equal(bucket_remaining(&b, now), 60);
    assert_int_equal(bucket_reset_us(&b, now), 0);
    for (int i = 0; i < 60; i++)
        assert_true(bucket_take(&b, 1, now));
    assert_false(bucket_take(&b, 1, now));
    assert_int_equal(bucket_wait_us(&b, 1, now), SECOND);
    assert_int_equal(bucket_reset_us(&b, now), 60 * SECOND);
    assert_false(bucket_take(&b, 1, now + SECOND - 1));
    assert_true(bucket_take(&b, 1, now + SECOND));
    assert_false(bucket_take(&b, 1, now + SECOND));
    /* A bucket never holds more than its limit, however long it is idle. A clock that stands still or goes back adds
     * nothing. */
    now += UINT64_MAX / 2;
    assert_int_equal(bucket_remaining(&b, now), 60);
    assert_true(bucket_take(&b, 60, now));
    assert_int_equal(bucket_remaining(&b, now - SECOND), 0);
    assert_int_equal(bucket_remaining(&b, now), 0);
}

static void waiting_as_told_is_enough_and_not_too_much(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1, 7, 59, 61, 1000, 999983, BUCKET_MAX_PER_MINUTE};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct bucket b;
        uint64_t now = 123;
        bucket_init(&b, rates[i], now);
        bucket_charge(&b, rates[i] + rates[i] / 3, now);
        uint64_t n = rates[i] / 2 + 1, wait = bucket_wait_us(&b, n, now);
        assert_true(wait > 0);
        assert_false(bucket_take(&b, n, now + wait - 1));
        now += wait;
        assert_true(bucket_take(&b, n, now));
        uint64_t reset = bucket_reset_us(&b, now);
        assert_true(bucket_remaining(&b, now + reset - 1) < rates[i]);
        assert_int_equal(bucket_remaining(&b, now + reset), rates[i]);
    }
}

static void debts_are_paid_first(void **state)
{
    (void)state;
    struct bucket b;
    bucket_init(&b, 600, 0);
    bucket_charge(&b, 1000, 0);
    assert_int_equal(bucket_remaining(&b, 0), 0);
    assert_int_equal(bucket_wait_us(&b, 1, 0), 40 * SECOND + SECOND / 10);
    assert_int_equal(bucket_remaining(&b, 40 * SECOND), 0);
    assert_int_equal(bucket_remaining(&b, 41 * SECOND), 10);
    /* An amount above the limit is taken only from a full bucket. */
    bucket_init(&b, 600, 0);
    assert_true(bucket_take(&b, 10, 0));
    assert_false(bucket_take(&b, 5000, 0));
    assert_int_equal(bucket_wait_us(&b, 5000, 0), SECOND);
    assert_true(bucket_take(&b, 5000, SECOND));
    assert_int_equal(bucket_wait_us(&b, 1, SECOND), 440 * SECOND + SECOND / 10);
    /* A debt is bounded, and reaching the bound does not overflow. */
    for (int i = 0; i < 100; i++)
        bucket_charge(&b, UINT64_MAX, SECOND);
    assert_true(b.level < 0 && b.level > INT64_MIN / 2);
    assert_true(bucket_wait_us(&b, 1, SECOND) > 0);
}

static void a_limit_can_change(void **state)
{
    (void)state;
    struct bucket b;
    bucket_init(&b, 0, 0);
    assert_true(bucket_take(&b, UINT64_MAX, 0));
    assert_int_equal(bucket_wait_us(&b, 1, 0), 0);
    bucket_resize(&b, 100, 0);
    assert_int_equal(bucket_remaining(&b, 0), 100);
    assert_true(bucket_take(&b, 80, 0));
    bucket_resize(&b, 50, 0);
    assert_int_equal(bucket_remaining(&b, 0), 0);
    assert_int_equal(bucket_wait_us(&b, 1, 0), 31 * 60 * SECOND / 50);
    bucket_resize(&b, 200, 0);
    assert_int_equal(bucket_remaining(&b, 0), 120);
    bucket_resize(&b, 0, 0);
    assert_true(bucket_take(&b, 1000, 0));
}

/* Compares with floating-point arithmetic, which is exact enough for small numbers. */
static void a_random_walk(void **state)
{
    (void)state;
    unsigned seed = 20;
    for (int round = 0; round < 50; round++) {
        uint64_t rate = 1 + (uint64_t)rand_r(&seed) % 5000, now = 0;
        double level = (double)rate;
        struct bucket b;
        bucket_init(&b, rate, now);
        for (int i = 0; i < 1000; i++) {
            uint64_t pause = (uint64_t)rand_r(&seed) % 100000, n = (uint64_t)rand_r(&seed) % 20;
            now += pause;
            level += (double)pause * (double)rate / 60e6;
            level = level < (double)rate ? level : (double)rate;
            double margin = level - (double)(n < rate ? n : rate);
            bool taken = bucket_take(&b, n, now);
            assert_true(taken ? margin > -1e-6 : margin < 1e-6);
            if (taken)
                level -= (double)n;
            if (i % 7 == 0) {
                bucket_charge(&b, 3, now);
                level -= 3;
            }
        }
        assert_true(level < (double)bucket_remaining(&b, now) + 1 + 1e-6);
    }
}

static void times_as_text(void **state)
{
    (void)state;
    static const struct {
        uint64_t us;
        const char *text;
    } rows[] = {{0, "0ms"},
                {1, "1ms"},
                {20000, "20ms"},
                {999000, "999ms"},
                {999001, "1s"},
                {1500000, "1.5s"},
                {59999000, "59.999s"},
                {60 * SECOND, "1m0s"},
                {360 * SECOND, "6m0s"},
                {90500001, "1m30.501s"},
                {86400 * SECOND, "1440m0s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[LIMITS_TIME_BYTES];
        limits_time(rows[i].us, text);
        assert_string_equal(text, rows[i].text);
    }
    char text[LIMITS_TIME_BYTES];
    limits_time(UINT64_MAX, text);
    assert_true(strlen(text) < LIMITS_TIME_BYTES);
}

static void limits_of_a_tenant(void **state)
{
    (void)state;
    struct api_error e;
    struct tenant t = {.requests_per_minute = 2, .tokens_per_minute = 100, .max_concurrent = 1};
    bucket_init(&t.requests, 2, 0);
    bucket_init(&t.tokens, 100, 0);
    assert_true(limits_begin(&t, 0, &e));
    assert_false(limits_begin(&t, 0, &e));
    assert_int_equal(e.status, 429);
    assert_non_null(strstr(e.why.text, "1 requests at once"));
    assert_int_equal(e.retry_ms, 1000);
    limits_end(&t);
    assert_true(limits_begin(&t, 0, &e)); /* the rejected request used up nothing */
    limits_end(&t);
    assert_false(limits_begin(&t, 0, &e));
    assert_int_equal(e.retry_ms, 30000);
    assert_string_equal(e.code, "rate_limit_exceeded");
    assert_true(limits_begin(&t, 30 * SECOND, &e));
    assert_true(limits_prompt(&t, 60, 30 * SECOND, &e));
    for (int i = 0; i < 50; i++)
        limits_token(&t, 30 * SECOND);
    assert_false(limits_prompt(&t, 20, 30 * SECOND, &e));
    assert_int_equal(e.retry_ms, 18000);
    assert_non_null(strstr(e.why.text, "try again in 18s"));
    limits_end(&t);
    assert_int_equal(t.n_concurrent, 0);
    assert_int_equal(t.n_limited, 3);
}

static void a_share_of_the_queue(void **state)
{
    (void)state;
    struct api_error e;
    struct tenant t = {.max_queued = 4}, boundless = {.max_queued = 0};
    assert_true(limits_queue(&boundless, UINT32_MAX, &e));
    assert_true(limits_queue(&t, 3, &e));
    assert_false(limits_queue(&t, 2, &e));
    assert_int_equal(e.status, 429);
    assert_int_equal(e.retry_ms, 1000);
    assert_int_equal(t.n_limited, 1);
    assert_true(limits_queue(&t, 1, &e));
    assert_false(limits_queue(&t, 1, &e));
    limits_dequeue(&t, 4);
    assert_true(limits_queue(&t, 4, &e));
    t.max_queued = 2; /* as after a reload of the file */
    assert_false(limits_queue(&t, 1, &e));
    assert_int_equal(e.status, 429);
    /* An amount that can never be taken gets no retry time. */
    assert_false(limits_queue(&t, 3, &e));
    assert_int_equal(e.status, 400);
    assert_int_equal(t.n_queued, 4);
    assert_int_equal(t.n_limited, 3);
}

int run_bucket_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_fills_at_its_rate),
        cmocka_unit_test(waiting_as_told_is_enough_and_not_too_much),
        cmocka_unit_test(debts_are_paid_first),
        cmocka_unit_test(a_limit_can_change),
        cmocka_unit_test(a_random_walk),
        cmocka_unit_test(times_as_text),
        cmocka_unit_test(limits_of_a_tenant),
        cmocka_unit_test(a_share_of_the_queue),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
