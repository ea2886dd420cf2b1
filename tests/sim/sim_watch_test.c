#include "tests/sim/sim_test.h"

#include "tools/bench/lib/metrics.h"
#include "tools/bench/lib/random.h"
#include "tools/sim/watch.h"

#include <math.h>
#include <string.h>

static void quantiles_are_close(void **state)
{
    (void)state;
    enum { N = 20001 };
    static double values[N];
    struct sim_watch *w;
    uint64_t random = 5;
    double sum = 0;
    assert_int_equal(sim_watch_create(1, 1, &w, NULL), QUIRE_OK);
    for (size_t i = 0; i < N; i++) {
        values[i] = ldexp(bench_random_unit(&random) + 0.1, (int)(bench_random(&random) % 20) - 6);
        sum += values[i];
        sim_watch_token_gap(w, 0, 0, values[i]);
    }
    bench_sort(values, N);
    for (double p = 0; p <= 100; p += 2.5) {
        double exact = values[(size_t)(p / 100 * (N - 1) + 0.5)], got = sim_histogram_quantile(&w->itl, p);
        assert_true(fabs(got - exact) <= exact * 0.002);
    }
    assert_true(w->itl.sum == sum && w->itl.n == N && w->tenant_itl[0].n == N && w->class_itl[0].n == N);
    sim_watch_token_gap(w, 0, 0, 0);
    sim_watch_token_gap(w, 0, 0, 1e30);
    assert_true(sim_histogram_quantile(&w->itl, 0) == 0);
    assert_true(sim_histogram_quantile(&w->itl, 100) > 1e6);
    sim_watch_free(w);
}

enum { TENANTS = 4, STEPS = 120 };

/* The largest |service of i - service of j| over any run of steps through which both are backlogged. */
static double naive_gap(double service[STEPS + 1][TENANTS], bool backlogged[STEPS][TENANTS])
{
    double gap = 0;
    for (int i = 0; i < TENANTS; i++)
        for (int j = 0; j < i; j++)
            for (int from = 0; from < STEPS; from++)
                for (int to = from; to < STEPS && backlogged[to][i] && backlogged[to][j]; to++)
                    gap = fmax(gap,
                               fabs(service[to + 1][i] - service[from][i] - service[to + 1][j] + service[from][j]));
    return gap;
}

static void the_fairness_gap_is_the_largest(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        double service[STEPS + 1][TENANTS] = {{0}};
        bool backlogged[STEPS][TENANTS];
        struct sim_watch *w;
        uint64_t random = seed;
        assert_int_equal(sim_watch_create(TENANTS, 1, &w, NULL), QUIRE_OK);
        for (int s = 0; s < STEPS; s++) {
            for (int t = 0; t < TENANTS; t++) {
                backlogged[s][t] = bench_random(&random) % 8 < 1 + seed % 8;
                service[s + 1][t] = service[s][t] + (double)(bench_random(&random) % 9);
                w->backlogged[t] = backlogged[s][t];
                w->tokens.service[t] = service[s + 1][t];
                w->time.service[t] = 2 * service[s + 1][t];
            }
            sim_watch_fairness(w);
        }
        assert_true(w->tokens.gap == naive_gap(service, backlogged));
        assert_true(w->time.gap == 2 * w->tokens.gap);
        sim_watch_free(w);
    }
}

static void curves_span_everything_in_bounded_space(void **state)
{
    (void)state;
    struct sim_watch *w;
    assert_int_equal(sim_watch_create(1, 1, &w, NULL), QUIRE_OK);
    for (double t = 0; t < 5e7; t += 777) {
        struct sim_point *p = sim_watch_point(w, t);
        if (p)
            p->n_running = (uint32_t)(t / 777);
    }
    assert_in_range(w->n_points, SIM_MAX_POINTS / 4, SIM_MAX_POINTS);
    for (uint32_t i = 0; i < w->n_points; i++) {
        assert_int_equal(w->points[i].n_running, (uint32_t)(w->points[i].at_us / 777));
        double gap = i ? w->points[i].at_us - w->points[i - 1].at_us : w->interval_us;
        assert_true(gap > 0.4 * w->interval_us && gap < 2.5 * w->interval_us); /* evenly, from beginning to end */
    }
    assert_true(w->points[0].at_us == 0);
    assert_true(w->points[w->n_points - 1].at_us > 4.9e7);
    sim_watch_free(w);
}

int run_sim_watch_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_close),
        cmocka_unit_test(the_fairness_gap_is_the_largest),
        cmocka_unit_test(curves_span_everything_in_bounded_space),
    };
    return cmocka_run_group_tests_name("sim watch", tests, NULL, NULL);
}
