/* The fit: exact on steps that follow the model, close under noise, never negative, and its errors by hand. */
#include "tests/tools/bench_test.h"

#include "tools/bench/lib/random.h"
#include "tools/bench/lib/cost_fit.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define N_SAMPLES 400u

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(bench_random(state) % n);
}

/* Steps of all kinds, up to 512 tokens. */
static struct sched_shape random_shape(uint64_t *state, uint32_t kind)
{
    struct sched_shape shape = {0};
    if (kind == COST_VERIFY) {
        for (uint32_t n = 1 + below(state, 16), k = 2 + below(state, 16); n > 0; n--)
            sched_shape_add(&shape, below(state, 4000), k, k);
        return shape;
    }
    if (kind != COST_PREFILL)
        for (uint32_t n = 1 + below(state, 64); n > 0; n--)
            sched_shape_add(&shape, below(state, 4000), 1, 1);
    if (kind != COST_DECODE)
        for (uint32_t n = 1 + below(state, 3); n > 0; n--)
            sched_shape_add(&shape, below(state, 4000), 2 + below(state, 2u << below(state, 8)), below(state, 2));
    return shape;
}

static void make_samples(const struct sched_cost *truth, uint64_t seed, struct cost_sample *out)
{
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        out[i].kind = (enum cost_kind)(i % COST_N_KINDS);
        out[i].shape = random_shape(&seed, i % COST_N_KINDS);
        out[i].us = sched_cost_us(truth, &out[i].shape);
    }
}

static const struct sched_cost truth = {
    .n_points = 5,
    .points = {{1, 900}, {8, 900}, {64, 1500}, {128, 4000}, {256, 7000}},
    .row_us = 3,
    .logit_us = 11,
    .context_us = 0.02,
    .pair_us = 0.005,
};

/* The true points are among the fit's, so that only rounding remains. */
static void a_model_is_found_again(void **state)
{
    (void)state;
    struct cost_sample samples[N_SAMPLES], others[N_SAMPLES];
    struct cost_error errors[COST_N_KINDS + 1];
    struct sched_cost got;
    make_samples(&truth, 1, samples);
    make_samples(&truth, 2, others);
    assert_int_equal(cost_fit(samples, N_SAMPLES, &got, NULL), QUIRE_OK);
    cost_fit_errors(&got, others, N_SAMPLES, errors);
    for (int k = 0; k <= COST_N_KINDS; k++) {
        assert_true(errors[k].n >= N_SAMPLES / COST_N_KINDS);
        assert_true(errors[k].mean_absolute < 1e-5 && fabs(errors[k].bias) < 1e-5);
    }
    assert_true(fabs(got.context_us - 0.02) < 1e-5 && fabs(got.pair_us - 0.005) < 1e-5);
    assert_true(fabs(got.logit_us - 11) < 0.01 && fabs(got.row_us - 3) < 0.01);
}

/* Steps of 20 ms and of 1 ms are each off by 3 % at random; the fit averages that out for both. */
static void noise_is_averaged(void **state)
{
    (void)state;
    struct cost_sample samples[N_SAMPLES], others[N_SAMPLES];
    struct cost_error errors[COST_N_KINDS + 1];
    struct sched_cost got;
    uint64_t seed = 3;
    make_samples(&truth, 4, samples);
    make_samples(&truth, 5, others);
    for (uint32_t i = 0; i < N_SAMPLES; i++)
        samples[i].us *= bench_random(&seed) % 2 ? 1.03 : 0.97;
    assert_int_equal(cost_fit(samples, N_SAMPLES, &got, NULL), QUIRE_OK);
    cost_fit_errors(&got, others, N_SAMPLES, errors);
    for (int k = 0; k <= COST_N_KINDS; k++)
        assert_true(errors[k].mean_absolute < 0.01); /* 3 % x sqrt(14 terms / 400 steps) = 0.6 % */
}

/* The model cannot express a time that falls with the tokens; the result is the best that it can, not a negative
 * price. */
static void nothing_is_negative(void **state)
{
    (void)state;
    uint64_t seed = 6;
    for (int round = 0; round < 100; round++) {
        struct cost_sample samples[60];
        struct sched_cost got;
        struct quire_error err;
        size_t n = 1 + below(&seed, 60);
        for (size_t i = 0; i < n; i++) {
            samples[i].shape = random_shape(&seed, below(&seed, COST_N_KINDS));
            samples[i].us = 1 + below(&seed, 100000);
        }
        assert_int_equal(cost_fit(samples, n, &got, &err), QUIRE_OK); /* which has checked it */
        assert_true(got.n_points > 0);
    }
    struct cost_sample falling[] = {{.shape = {.n_rows = 1, .n_tokens = 1}, .us = 10},
                                    {.shape = {.n_rows = 1, .n_tokens = 2}, .us = 5}};
    struct sched_cost got;
    assert_int_equal(cost_fit(falling, 2, &got, NULL), QUIRE_OK);
    /* One constant c for both: (c/10 - 1)^2 + (c/5 - 1)^2 is least at c = (1/10 + 1/5) / (1/100 + 1/25) = 6. */
    assert_true(fabs(sched_cost_us(&got, &falling[0].shape) - 6) < 1e-6);
    assert_true(fabs(sched_cost_us(&got, &falling[1].shape) - 6) < 1e-6);
    assert_int_equal(cost_fit(falling, 0, &got, NULL), QUIRE_INVALID);
}

static void points_are_where_steps_are(void **state)
{
    (void)state;
    struct cost_sample samples[] = {{.shape = {.n_rows = 1, .n_tokens = 1}, .us = 10},
                                    {.shape = {.n_rows = 1, .n_tokens = 30}, .us = 20},
                                    {.shape = {.n_rows = 1, .n_tokens = 100}, .us = 50}};
    struct sched_cost got;
    assert_int_equal(cost_fit(samples, 3, &got, NULL), QUIRE_OK);
    assert_int_equal(got.n_points, 3);
    assert_int_equal(got.points[1].n_tokens, 32);
    assert_int_equal(got.points[2].n_tokens, 100);
    samples[2].shape.n_tokens = 1u << 31; /* any value fits */
    assert_int_equal(cost_fit(samples, 3, &got, NULL), QUIRE_OK);
}

static void errors_by_hand(void **state)
{
    (void)state;
    const struct sched_cost cost = {.n_points = 1, .points = {{1, 100}}};
    const struct cost_sample samples[] = {
        {.kind = COST_DECODE, .shape = {.n_rows = 2, .n_tokens = 2}, .us = 80},
        {.kind = COST_DECODE, .shape = {.n_rows = 2, .n_tokens = 2}, .us = 125},
        {.kind = COST_PREFILL, .shape = {.n_rows = 1, .n_tokens = 7}, .us = 200},
    };
    struct cost_error errors[COST_N_KINDS + 1];
    cost_fit_errors(&cost, samples, 3, errors);
    assert_int_equal(errors[COST_DECODE].n, 2);
    assert_true(fabs(errors[COST_DECODE].mean_absolute - (0.25 + 0.2) / 2) < 1e-12);
    assert_true(fabs(errors[COST_DECODE].bias - (200.0 / 205 - 1)) < 1e-12);
    assert_true(fabs(errors[COST_PREFILL].bias + 0.5) < 1e-12);
    assert_int_equal(errors[COST_MIXED].n, 0);
    assert_true(fabs(errors[COST_N_KINDS].mean_absolute - (0.25 + 0.2 + 0.5) / 3) < 1e-12);
}

int run_cost_fit_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_found_again), cmocka_unit_test(noise_is_averaged),
        cmocka_unit_test(nothing_is_negative),    cmocka_unit_test(points_are_where_steps_are),
        cmocka_unit_test(errors_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
