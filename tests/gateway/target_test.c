/* The states of targets and the choice among them. The random test compares them with a model that is written from
 * target.h: a list of results, and the times that follow from it. */
#include "server/gateway/target/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

static void run(struct target_state *t, enum target_result result, uint64_t now)
{
    const bool is_trial = target_begin(t, 10, now);
    target_end(t, 10, is_trial, result, 100, 0, now);
}

static void test_failures_in_a_row_open(void **state)
{
    struct target_state t;
    (void)state;
    target_init(&t, 1, 0);
    run(&t, TARGET_FAILED, 0);
    run(&t, TARGET_FAILED, 0);
    run(&t, TARGET_ANSWERED, 0);
    run(&t, TARGET_FAILED, 0);
    run(&t, TARGET_FAILED, 0);
    assert_int_equal(t.breaker, TARGET_CLOSED);
    run(&t, TARGET_FAILED, 0);
    assert_int_equal(t.breaker, TARGET_OPEN);
    assert_false(target_may(&t, TARGET_OPEN_MS - 1));
    assert_true(target_may(&t, TARGET_OPEN_MS));
}

static void test_half_of_the_last_results_open(void **state)
{
    struct target_state t;
    (void)state;
    target_init(&t, 1, 0);
    for (int i = 0; i < TARGET_RESULTS - 1; i++)
        run(&t, i % 2 ? TARGET_ANSWERED : TARGET_FAILED, 0);
    assert_int_equal(t.breaker, TARGET_CLOSED);
    run(&t, TARGET_FAILED, 0); /* 11 of 20 */
    assert_int_equal(t.breaker, TARGET_OPEN);
}

static void test_one_trial(void **state)
{
    struct target_state t;
    (void)state;
    target_init(&t, 1, 0);
    for (int i = 0; i < TARGET_TRIP_AFTER; i++)
        run(&t, TARGET_FAILED, 0);
    const bool first = target_begin(&t, 5, TARGET_OPEN_MS);
    assert_true(first);
    assert_false(target_may(&t, TARGET_OPEN_MS));
    target_end(&t, 5, first, TARGET_CANCELLED, 0, 0, TARGET_OPEN_MS);
    assert_true(target_may(&t, TARGET_OPEN_MS)); /* a cancelled trial says nothing */
    run(&t, TARGET_FAILED, TARGET_OPEN_MS);
    assert_int_equal(t.breaker, TARGET_OPEN);
    assert_int_equal(t.open_ms, 2 * TARGET_OPEN_MS);
    run(&t, TARGET_ANSWERED, 3 * TARGET_OPEN_MS);
    assert_int_equal(t.breaker, TARGET_CLOSED);
    for (int i = 0; i < TARGET_TRIP_AFTER; i++)
        run(&t, TARGET_FAILED, 4 * TARGET_OPEN_MS);
    assert_int_equal(t.open_ms, TARGET_OPEN_MS); /* an answer ended the doubling */
}

/* A request that began before the breaker opened does not decide the trial. */
static void test_late_results(void **state)
{
    struct target_state t;
    (void)state;
    target_init(&t, 1, 0);
    const bool early = target_begin(&t, 7, 0);
    for (int i = 0; i < TARGET_TRIP_AFTER; i++)
        run(&t, TARGET_FAILED, 0);
    const bool trial = target_begin(&t, 5, TARGET_OPEN_MS);
    target_end(&t, 7, early, TARGET_FAILED, 0, 0, TARGET_OPEN_MS);
    assert_int_equal(t.breaker, TARGET_HALF_OPEN);
    target_end(&t, 5, trial, TARGET_ANSWERED, 50, 0, TARGET_OPEN_MS);
    assert_int_equal(t.breaker, TARGET_CLOSED);
    assert_int_equal(t.outstanding, 0);
    assert_int_equal(t.n_running, 0);
}

static void test_overload_rests(void **state)
{
    struct target_state t;
    const struct target_state *list[1] = {&t};
    uint32_t turn = 0;
    (void)state;
    target_init(&t, 1, 0);
    for (int i = 0; i < 10; i++) {
        const bool is_trial = target_begin(&t, 1, 0);
        target_end(&t, 1, is_trial, TARGET_OVERLOADED, 0, 7000, 0);
    }
    assert_int_equal(t.breaker, TARGET_CLOSED);
    assert_int_equal(target_choose(list, 1, 0, 6999, &turn), -1);
    assert_int_equal(target_returns_ms(list, 1, 5000), 2000);
    assert_int_equal(target_choose(list, 1, 0, 7000, &turn), 0);
}

static void test_probes(void **state)
{
    struct target_state t;
    (void)state;
    target_init(&t, 1, 0);
    assert_false(target_wants_probe(&t, 100000));
    for (int i = 0; i < TARGET_TRIP_AFTER; i++)
        run(&t, TARGET_FAILED, 100000);
    t.open_ms = 60000;
    t.opens_until_ms = 160000;
    assert_true(target_wants_probe(&t, 100000));
    target_probing(&t, 100000);
    assert_false(target_wants_probe(&t, 100000 + TARGET_PROBE_MS - 1));
    target_probed(&t, false, 101000);
    assert_false(target_may(&t, 101000));
    target_probed(&t, true, 102000);
    assert_true(target_may(&t, 102000)); /* long before its time is over */
    assert_int_equal(t.breaker, TARGET_HALF_OPEN);
}

static void test_weights_and_turns(void **state)
{
    struct target_state a, b;
    const struct target_state *list[2] = {&a, &b};
    uint32_t turn = 0;
    (void)state;
    target_init(&a, 3, 0);
    target_init(&b, 1, 2);
    const int first = target_choose(list, 2, 0, 0, &turn), second = target_choose(list, 2, 0, 0, &turn);
    assert_int_not_equal(first, second);
    target_begin(&a, 299, 0);
    target_begin(&b, 100, 0);
    assert_int_equal(target_choose(list, 2, 0, 0, &turn), 0);
    target_begin(&a, 2, 0);
    assert_int_equal(target_choose(list, 2, 0, 0, &turn), 1);
    assert_int_equal(target_choose(list, 2, 2, 0, &turn), 0); /* b was tried */
    assert_int_equal(target_choose(list, 2, 3, 0, &turn), -1);
    target_begin(&b, 0, 0);
    assert_int_equal(target_choose(list, 2, 1, 0, &turn), -1); /* b is full */
}

static void test_retry_budget(void **state)
{
    struct retry_budget b;
    int n = 0;
    (void)state;
    retry_budget_init(&b);
    while (retry_budget_take(&b))
        n++;
    assert_int_equal(n, 10);
    for (int i = 0; i < 4; i++)
        retry_budget_first(&b);
    assert_false(retry_budget_take(&b));
    retry_budget_first(&b);
    assert_true(retry_budget_take(&b));
    for (int i = 0; i < 100000; i++)
        retry_budget_first(&b);
    for (n = 0; retry_budget_take(&b);)
        n++;
    assert_int_equal(n, 100);
}

/* ---- random --------------------------------------------------------------------------------- */

#define N 6
struct running {
    int target;
    uint64_t tokens;
    bool is_trial;
};

/* The choice, by its definition: no order of search, every target compared with every other. */
static bool is_right(const struct target_state *t, int chosen, uint64_t tried, uint64_t now)
{
    int n_may = 0;
    for (int i = 0; i < N; i++) {
        bool may = !(tried >> i & 1) && now >= t[i].rests_until_ms &&
                   (t[i].max_concurrent == 0 || t[i].n_running < t[i].max_concurrent) &&
                   (t[i].breaker == TARGET_CLOSED || (t[i].breaker == TARGET_OPEN && now >= t[i].opens_until_ms) ||
                    (t[i].breaker == TARGET_HALF_OPEN && !t[i].has_trial));
        n_may += may;
        if (chosen == i && !may)
            return false;
        if (may && chosen >= 0 &&
            (double)t[i].outstanding / t[i].weight < (double)t[chosen].outstanding / t[chosen].weight - 1e-9)
            return false;
    }
    return chosen >= 0 || n_may == 0;
}

static void check(const struct target_state *t, const struct running *running, int n_running)
{
    for (int i = 0; i < N; i++) {
        uint64_t tokens = 0;
        uint32_t n = 0, n_trials = 0;
        for (int k = 0; k < n_running; k++) {
            tokens += running[k].target == i ? running[k].tokens : 0;
            n += running[k].target == i;
            n_trials += running[k].target == i && running[k].is_trial;
        }
        assert_int_equal(t[i].outstanding, tokens);
        assert_int_equal(t[i].n_running, n);
        assert_in_range(t[i].open_ms, 0, TARGET_MAX_OPEN_MS);
        if (t[i].breaker == TARGET_HALF_OPEN)
            assert_true(n_trials <= 1 && t[i].has_trial == (n_trials == 1));
        if (t[i].breaker == TARGET_CLOSED)
            assert_true(t[i].n_in_a_row < TARGET_TRIP_AFTER);
    }
}

static void test_random(void **state)
{
    static const enum target_result results[] = {TARGET_ANSWERED, TARGET_ANSWERED,   TARGET_ANSWERED, TARGET_FAILED,
                                                 TARGET_FAILED,   TARGET_OVERLOADED, TARGET_CANCELLED};
    struct target_state t[N];
    const struct target_state *list[N];
    struct running running[64];
    int n_running = 0;
    uint64_t now = 1000, n_chosen = 0;
    uint32_t turn = 0;
    unsigned seed = 42;
    (void)state;
    for (int i = 0; i < N; i++) {
        target_init(&t[i], 1 + (uint32_t)i, i % 3 == 0 ? 0 : 4);
        list[i] = &t[i];
    }
    for (int step = 0; step < 200000; step++) {
        now += (uint64_t)(rand_r(&seed) % 40);
        if (n_running < 64 && rand_r(&seed) % 2) {
            const uint64_t tried = (uint64_t)(rand_r(&seed) % 8 == 0 ? rand_r(&seed) % (1 << N) : 0);
            const int i = target_choose(list, N, tried, now, &turn);
            assert_true(is_right(t, i, tried, now));
            if (i < 0)
                continue;
            struct running *r = &running[n_running++];
            *r = (struct running){i, 1 + (uint64_t)(rand_r(&seed) % 1000), false};
            r->is_trial = target_begin(&t[i], r->tokens, now);
            n_chosen++;
        } else if (n_running > 0) {
            const int k = rand_r(&seed) % n_running;
            const struct running r = running[k];
            running[k] = running[--n_running];
            target_end(&t[r.target], r.tokens, r.is_trial, results[rand_r(&seed) % 7], (uint32_t)(rand_r(&seed) % 5000),
                       (uint32_t)(rand_r(&seed) % 3000), now);
        } else if (target_wants_probe(&t[step % N], now)) {
            target_probing(&t[step % N], now);
            target_probed(&t[step % N], rand_r(&seed) % 2, now);
        }
        check(t, running, n_running);
    }
    assert_true(n_chosen > 10000); /* the targets come back */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_in_a_row_open),
        cmocka_unit_test(test_half_of_the_last_results_open),
        cmocka_unit_test(test_one_trial),
        cmocka_unit_test(test_late_results),
        cmocka_unit_test(test_overload_rests),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_weights_and_turns),
        cmocka_unit_test(test_retry_budget),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
