/* The online fit: close to a machine it knows only by its steps, steady under noise, deaf to outliers and to garbage. */
#include "scheduler/fit/cost_fitter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct sched_cost truth = {
    .n_points = 4,
    .points = {{1, 900}, {8, 950}, {64, 2000}, {512, 15000}},
    .row_us = 3,
    .logit_us = 11,
    .context_us = 0.02,
    .pair_us = 0.005,
};

static uint32_t below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

/* Three steps of four decode. */
static struct sched_shape random_shape(uint64_t *state)
{
    struct sched_shape shape = {0};
    for (uint32_t n = 1 + below(state, 16); n > 0; n--)
        sched_shape_add(&shape, below(state, 8000), 1, 1);
    if (below(state, 4) == 0)
        sched_shape_add(&shape, below(state, 8000), 16 + below(state, 496), below(state, 2));
    return shape;
}

/* Up to a tenth off; one of 32 takes ten times as long. */
static double noisy(uint64_t *state, double us)
{
    us *= 0.9 + 0.2 * below(state, 1001) / 1000;
    return below(state, 32) == 0 ? 10 * us : us;
}

/* A number of steps of a machine that takes `factor` times the truth. Returns the changes; *cost is the last model. */
static uint32_t run(struct cost_fitter *f, uint64_t *state, uint32_t n, double factor, struct sched_cost *cost)
{
    uint32_t n_changes = 0;
    while (n-- > 0) {
        struct sched_shape shape = random_shape(state);
        cost_fitter_add(f, &shape, noisy(state, factor * sched_cost_us(&truth, &shape)));
        n_changes += cost_fitter_change(f, cost);
    }
    return n_changes;
}

/* The mean of the absolute relative errors on other steps. */
static double error_of(const struct sched_cost *cost, double factor)
{
    uint64_t state = 99;
    double sum = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        struct sched_shape shape = random_shape(&state);
        double us = factor * sched_cost_us(&truth, &shape);
        sum += fabs(sched_cost_us(cost, &shape) - us) / us;
    }
    return sum / 1000;
}

static struct cost_fitter *create(void)
{
    struct cost_fitter *f;
    assert_int_equal(cost_fitter_create(&f, NULL), QUIRE_OK);
    return f;
}

static void a_machine_is_learnt(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cost_fitter *f = create();
        uint64_t state = seed;
        struct sched_cost cost;
        assert_int_equal(run(f, &state, COST_FITTER_EVERY - 1, 1, &cost), 0);
        assert_int_equal(run(f, &state, 1, 1, &cost), 1);
        assert_int_equal(sched_cost_check(&cost, NULL), QUIRE_OK);
        assert_true(error_of(&cost, 1) < 0.06);
        assert_true(cost_fitter_error(f) > 0.05 && cost_fitter_error(f) < 0.3); /* one of 32 is off by nine tenths */
        cost_fitter_destroy(f);
    }
}

/* Steps of like size do not say what a longer one takes. */
static void few_sizes_make_no_model(void **unused)
{
    (void)unused;
    struct cost_fitter *f = create();
    struct sched_cost cost;
    for (uint32_t i = 0; i < 10 * COST_FITTER_EVERY; i++) {
        struct sched_shape shape = {0};
        for (uint32_t n = 0; n <= i % 4; n++)
            sched_shape_add(&shape, i, 1, 1);
        cost_fitter_add(f, &shape, 1000);
        assert_false(cost_fitter_change(f, &cost));
    }
    /* Nor do a few long ones. */
    for (uint32_t i = 0; i < COST_FITTER_EVERY; i++) {
        struct sched_shape shape = {.n_rows = 1, .n_tokens = i < 7 ? 64 : 1};
        cost_fitter_add(f, &shape, 1000);
        assert_false(cost_fitter_change(f, &cost));
    }
    cost_fitter_destroy(f);
}

static void noise_is_no_change(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cost_fitter *f = create();
        uint64_t state = seed;
        struct sched_cost cost;
        assert_int_equal(run(f, &state, COST_FITTER_EVERY, 1, &cost), 1);
        assert_true(run(f, &state, 200 * COST_FITTER_EVERY, 1, &cost) <= 4);
        cost_fitter_destroy(f);
    }
}

static void a_slower_machine_is_noticed(void **unused)
{
    (void)unused;
    struct cost_fitter *f = create();
    uint64_t state = 7;
    struct sched_cost cost;
    run(f, &state, 4 * COST_FITTER_EVERY, 1, &cost);
    uint32_t n = run(f, &state, 20 * COST_FITTER_EVERY, 2, &cost);
    assert_true(n >= 1 && n <= 8);
    assert_true(error_of(&cost, 2) < 0.12);
    n = run(f, &state, 20 * COST_FITTER_EVERY, 1, &cost);
    assert_true(n >= 1 && n <= 8);
    assert_true(error_of(&cost, 1) < 0.12);
    cost_fitter_destroy(f);
}

/* A night of decoding does not forget what prompts cost. */
static void rare_sizes_are_remembered(void **unused)
{
    (void)unused;
    struct cost_fitter *f = create();
    uint64_t state = 5;
    struct sched_cost cost;
    run(f, &state, 2 * COST_FITTER_EVERY, 1, &cost);
    for (uint32_t i = 0; i < 100000; i++) {
        struct sched_shape shape = {0};
        sched_shape_add(&shape, below(&state, 8000), 1, 1);
        cost_fitter_add(f, &shape, noisy(&state, sched_cost_us(&truth, &shape)));
        cost_fitter_change(f, &cost);
    }
    assert_true(error_of(&cost, 1) < 0.08);
    /* Nor do changes of the model that only decodes bring about. */
    uint32_t n_changes = 0;
    for (uint32_t i = 0; i < 20 * COST_FITTER_EVERY; i++) {
        struct sched_shape shape = {0};
        sched_shape_add(&shape, below(&state, 8000), 1, 1);
        cost_fitter_add(f, &shape, noisy(&state, 1.5 * sched_cost_us(&truth, &shape)));
        n_changes += cost_fitter_change(f, &cost);
    }
    struct sched_shape prompt = {0};
    sched_shape_add(&prompt, 1000, 400, 0);
    double us = sched_cost_us(&truth, &prompt);
    assert_true(n_changes > 0);
    assert_true(sched_cost_us(&cost, &prompt) > 0.8 * us && sched_cost_us(&cost, &prompt) < 1.6 * us);
    cost_fitter_destroy(f);
}

static void the_same_samples_give_the_same_models(void **unused)
{
    (void)unused;
    struct cost_fitter *a = create(), *b = create();
    uint64_t of_a = 3, of_b = 3;
    for (uint32_t i = 0; i < 40; i++) {
        struct sched_cost x = {0}, y = {0};
        double factor = 1 + 0.3 * (i % 3);
        assert_int_equal(run(a, &of_a, COST_FITTER_EVERY, factor, &x), run(b, &of_b, COST_FITTER_EVERY, factor, &y));
        assert_memory_equal(&x, &y, sizeof x);
    }
    cost_fitter_destroy(a);
    cost_fitter_destroy(b);
}

static void garbage_does_no_harm(void **unused)
{
    (void)unused;
    static const double times[] = {0, -1, NAN, INFINITY, 1e300, 1e-300, 5};
    struct cost_fitter *f = create();
    uint64_t state = 11;
    struct sched_cost cost;
    for (uint32_t i = 0; i < 20000; i++) {
        struct sched_shape shape = random_shape(&state);
        if (below(&state, 50) == 0)
            shape = (struct sched_shape){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, 0};
        shape.n_tokens = below(&state, 50) == 0 ? 0 : shape.n_tokens;
        shape.n_block_copies = below(&state, 50) == 0;
        cost_fitter_add(f, &shape, times[below(&state, sizeof times / sizeof times[0])]);
        if (cost_fitter_change(f, &cost))
            assert_int_equal(sched_cost_check(&cost, NULL), QUIRE_OK);
    }
    cost_fitter_destroy(f);
    /* Copies between the tiers are no part of a step's computation. */
    f = create();
    for (uint32_t i = 0; i < 10 * COST_FITTER_EVERY; i++) {
        struct sched_shape shape = random_shape(&state);
        shape.n_block_copies = 1;
        cost_fitter_add(f, &shape, 1000);
        assert_false(cost_fitter_change(f, &cost));
    }
    cost_fitter_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_is_learnt),       cmocka_unit_test(few_sizes_make_no_model),
        cmocka_unit_test(noise_is_no_change),        cmocka_unit_test(a_slower_machine_is_noticed),
        cmocka_unit_test(rare_sizes_are_remembered), cmocka_unit_test(the_same_samples_give_the_same_models),
        cmocka_unit_test(garbage_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
