/* The time limit of a step with adaptive_budget: what it learns, its bounds, and its dead band. */
#include "scheduler/budget.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TARGET_US 10000u

/* Steps of this many times the predicted time; returns how often the target changed. */
static uint32_t run_steps(struct budget *b, uint32_t n, double times)
{
    uint64_t now_us = b->ended_us + 1;
    uint32_t n_changes = 0;
    for (uint32_t i = 0; i < n; i++) {
        double before = budget_target_us(b);
        uint64_t step = b->committed + 1;
        budget_end(b, now_us, step, 100, true, 1000);
        now_us += (uint64_t)(1000 * times);
        budget_begin(b, now_us, step);
        n_changes += budget_target_us(b) != before;
    }
    return n_changes;
}

/* Noise of up to a tenth changes nothing; more does, and the ratio in effect is never off by more than a tenth. */
static void test_dead_band(void **state)
{
    (void)state;
    struct budget b;
    budget_init(&b, TARGET_US, true);
    assert_int_equal(run_steps(&b, 500, 1.095), 0);
    assert_true(b.ratio > 1.09 && budget_target_us(&b) == TARGET_US);
    assert_int_equal(run_steps(&b, 500, 1.15), 1);
    assert_true(fabs(budget_target_us(&b) - TARGET_US / 1.1) < 0.01 * TARGET_US);
    assert_int_equal(run_steps(&b, 500, 1.02), 0);
    assert_int_equal(run_steps(&b, 500, 0.98), 1);
    uint32_t n_changes = run_steps(&b, 500, 2);
    assert_in_range(n_changes, 4, 7);
    assert_true(budget_target_us(&b) < TARGET_US / 1.8 && budget_target_us(&b) >= TARGET_US / 2.0);
}

/* A tenth of each new ratio: one outlier is no change. */
static void test_outliers(void **state)
{
    (void)state;
    struct budget b;
    budget_init(&b, TARGET_US, true);
    run_steps(&b, 1, 2);
    assert_true(fabs(b.ratio - 1.1) < 1e-9);
    budget_init(&b, TARGET_US, true);
    run_steps(&b, 1, 1000);
    assert_true(fabs(b.ratio - 1.3) < 1e-9); /* 4 at most */
}

static void test_bounds(void **state)
{
    (void)state;
    struct budget b;
    budget_init(&b, TARGET_US, true);
    run_steps(&b, 1000, 100);
    assert_true(b.ratio > 3.99 && b.ratio <= 4 && budget_target_us(&b) >= TARGET_US / 4.0);
    run_steps(&b, 1000, 0.01);
    assert_true(b.ratio < 0.251 && b.ratio >= 0.25 && budget_target_us(&b) <= TARGET_US * 4.0);
    assert_true(budget_target_us(&b) > TARGET_US * 3.6);
    budget_init(&b, TARGET_US, false);
    assert_int_equal(run_steps(&b, 100, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_band),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
