/* The cost model: its arithmetic by hand, its inverse against a scan, and its errors. */
#include "scheduler/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

/* Numbers that doubles hold exactly, so that sums computed by hand can be compared for equality. */
static const struct sched_cost simple = {
    .n_points = 3,
    .points = {{1, 100}, {5, 120}, {9, 200}},
    .row_us = 2,
    .logit_us = 0.5,
    .context_us = 0.25,
    .pair_us = 0.125,
    .block_copy_us = 7,
};

static double tokens_only(const struct sched_cost *from, uint32_t n_tokens)
{
    struct sched_cost cost = {.n_points = from->n_points};
    memcpy(cost.points, from->points, sizeof cost.points);
    return sched_cost_us(&cost, &(struct sched_shape){.n_rows = 1, .n_tokens = n_tokens});
}

static void tokens_are_interpolated(void **state)
{
    (void)state;
    assert_true(tokens_only(&simple, 0) == 0);
    assert_true(tokens_only(&simple, 1) == 100);
    assert_true(tokens_only(&simple, 2) == 105);
    assert_true(tokens_only(&simple, 4) == 115);
    assert_true(tokens_only(&simple, 5) == 120);
    assert_true(tokens_only(&simple, 7) == 160);
    assert_true(tokens_only(&simple, 9) == 200);
    assert_true(tokens_only(&simple, 10) == 220); /* the last slope continues */
    assert_true(tokens_only(&simple, 109) == 2200);
    const struct sched_cost flat = {.n_points = 1, .points = {{1, 30}}}, none = {0};
    assert_true(tokens_only(&flat, 1) == 30 && tokens_only(&flat, 1000) == 30);
    assert_true(tokens_only(&none, 10) == 0);
}

static void a_step_by_hand(void **state)
{
    (void)state;
    struct sched_shape shape = {0};
    sched_shape_add(&shape, 11, 1, 1); /* reads 12 positions, 12 pairs */
    sched_shape_add(&shape, 0, 4, 0);  /* 4 positions, 1 + 2 + 3 + 4 pairs */
    sched_shape_add(&shape, 10, 3, 1); /* 13 positions, 11 + 12 + 13 pairs */
    sched_shape_add(&shape, 0, 1, 0);  /* 1 and 1 */
    assert_int_equal(shape.n_rows, 4);
    assert_int_equal(shape.n_tokens, 9);
    assert_int_equal(shape.n_logits, 2);
    assert_int_equal(shape.n_context, 30);
    assert_int_equal(shape.n_pairs, 59);
    shape.n_block_copies = 3;
    assert_true(sched_cost_us(&simple, &shape) == 200 + 4 * 2 + 2 * 0.5 + 30 * 0.25 + 59 * 0.125 + 3 * 7);
    shape = (struct sched_shape){0};
    sched_shape_add(&shape, 4000000000u, 200000000u, 0);
    /* n first + n (n + 1) / 2, in Python */
    assert_true(shape.n_pairs == 820000000100000000u && shape.n_context == 4200000000u);
}

static void huge_costs_stay_convertible(void **state)
{
    (void)state;
    struct sched_cost cost = {.n_points = 2, .points = {{1, 0}, {2, 1e308}}, .row_us = 1e308};
    assert_int_equal(sched_cost_check(&cost, NULL), QUIRE_OK);
    const struct sched_shape shape = {.n_rows = 1000, .n_tokens = UINT32_MAX};
    assert_true(sched_cost_us(&cost, &shape) == SCHED_COST_MAX_US);
    cost = (struct sched_cost){.n_points = 1, .points = {{1, 1e20}}};
    assert_true(sched_cost_us(&cost, &shape) == SCHED_COST_MAX_US);
    assert_true(sched_cost_prefill_us(&cost, 0, UINT32_MAX, 512) == SCHED_COST_MAX_US);
}

/* ---- the inverse ---- */

static uint32_t scan(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first, uint32_t most,
                     double target_us)
{
    uint32_t best = 0;
    for (uint32_t count = 1; count <= most; count++) {
        struct sched_shape with = *shape;
        sched_shape_add(&with, first, count, 0);
        if (sched_cost_us(cost, &with) <= target_us)
            best = count;
    }
    return best;
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static double random_us(uint64_t *state, uint32_t most)
{
    return random_below(state, most) / 16.0 / (1 + random_below(state, 30));
}

static struct sched_cost random_cost(uint64_t *state)
{
    struct sched_cost cost = {.n_points = 1 + random_below(state, SCHED_COST_MAX_POINTS)};
    uint32_t n_tokens = 1;
    double us = random_us(state, 3000);
    for (uint32_t i = 0; i < cost.n_points; i++) {
        cost.points[i].n_tokens = n_tokens;
        cost.points[i].us = us;
        n_tokens += 1 + random_below(state, 1 + n_tokens);
        us += random_us(state, 1000);
    }
    cost.row_us = random_us(state, 100);
    cost.logit_us = random_us(state, 100);
    cost.context_us = random_us(state, 40);
    cost.pair_us = random_us(state, 4);
    return cost;
}

static struct sched_shape random_shape(uint64_t *state)
{
    struct sched_shape shape = {0};
    for (uint32_t n = random_below(state, 5); n > 0; n--)
        sched_shape_add(&shape, random_below(state, 200), 1 + random_below(state, 9), 1);
    return shape;
}

static void fit_is_the_largest_count_within_the_target(void **state)
{
    (void)state;
    uint64_t seed = 7;
    uint32_t n_none = 0, n_all = 0, n_between = 0, n_one = 0;
    for (int round = 0; round < 3000; round++) {
        struct sched_cost cost = random_cost(&seed);
        struct sched_shape shape = random_shape(&seed);
        uint32_t first = random_below(&seed, 300), most = random_below(&seed, 200);
        double target = sched_cost_us(&cost, &shape) + random_us(&seed, 3000);
        uint32_t room = sched_cost_fit(&cost, &shape, first, most, target);
        assert_int_equal(room, scan(&cost, &shape, first, most, target));
        n_none += room == 0;
        n_one += room == 1;
        n_all += room == most;
        n_between += room > 1 && room < most;
    }
    assert_true(n_none > 100 && n_one > 10 && n_all > 100 && n_between > 100);
}

/* The exact cost of a count is within the target; anything less is not. */
static void fit_is_exact_at_the_border(void **state)
{
    (void)state;
    const struct sched_shape empty = {0};
    for (uint32_t count = 1; count < 50; count++) {
        struct sched_shape shape = {0};
        sched_shape_add(&shape, 20, count, 0);
        double us = sched_cost_us(&simple, &shape);
        assert_int_equal(sched_cost_fit(&simple, &empty, 20, 1000, us), count);
        assert_int_equal(sched_cost_fit(&simple, &empty, 20, 1000, nextafter(us, 0)), count - 1);
    }
    assert_int_equal(sched_cost_fit(&simple, &empty, 20, 0, 1e9), 0);
    assert_int_equal(sched_cost_fit(&simple, &empty, 20, 1000, 0), 0);
    assert_int_equal(sched_cost_fit(&simple, &empty, 20, 1000, 1e9), 1000);
}

static void more_never_costs_less(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 200; round++) {
        struct sched_cost cost = random_cost(&seed);
        double last = 0;
        for (uint32_t n = 0; n < 3000; n++) {
            double us = tokens_only(&cost, n);
            assert_true(us >= last);
            last = us;
        }
    }
}

/* 8.2 + (59.9 - 8.2) rounds to more than 59.9, where the next piece begins. */
static void rounding_makes_no_point_a_peak(void **state)
{
    (void)state;
    const struct sched_cost cost = {.n_points = 3, .points = {{1, 8.2}, {2, 59.9}, {3, 59.9}}};
    assert_true(8.2 + (59.9 - 8.2) > 59.9);
    assert_true(tokens_only(&cost, 2) == 59.9 && tokens_only(&cost, 3) == 59.9);
}

static void a_prompt_is_the_sum_of_its_steps(void **state)
{
    (void)state;
    uint64_t seed = 13;
    for (int round = 0; round < 500; round++) {
        struct sched_cost cost = random_cost(&seed);
        uint32_t first = random_below(&seed, 100), count = random_below(&seed, 400);
        uint32_t chunk = 1 + random_below(&seed, 90), last = first + count;
        double us = 0;
        for (uint32_t at = first; at < last; at += chunk) {
            struct sched_shape shape = {0};
            sched_shape_add(&shape, at, last - at < chunk ? last - at : chunk, 0);
            us += sched_cost_us(&cost, &shape);
        }
        /* At most 400 roundings apart. */
        double got = sched_cost_prefill_us(&cost, first, count, chunk);
        assert_true(fabs(got - us) <= 400 * 0x1p-52 * us);
    }
}

/* ---- errors ---- */

static void assert_refused(const struct sched_cost *cost, const char *says)
{
    struct quire_error err;
    assert_int_equal(sched_cost_check(cost, &err), QUIRE_INVALID);
    assert_ptr_equal(strstr(err.text, says), err.text);
}

static void the_member_is_named(void **state)
{
    (void)state;
    const double wrong[] = {-1, NAN, INFINITY, -INFINITY};
    struct sched_cost cost = simple;
    const struct {
        double *us;
        const char *name;
    } members[] = {
        {&cost.row_us, "row_us: "},
        {&cost.logit_us, "logit_us: "},
        {&cost.context_us, "context_us: "},
        {&cost.pair_us, "pair_us: "},
        {&cost.block_copy_us, "block_copy_us: "},
        {&cost.points[0].us, "points[0].us: "},
        {&cost.points[2].us, "points[2].us: "},
    };
    assert_int_equal(sched_cost_check(&cost, NULL), QUIRE_OK);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            cost = simple;
            *members[i].us = wrong[k];
            assert_refused(&cost, members[i].name);
        }
    cost = simple;
    cost.points[0].n_tokens = 2;
    assert_refused(&cost, "points[0].n_tokens: must be 1");
    cost = simple;
    cost.points[2].n_tokens = 5;
    assert_refused(&cost, "points[2].n_tokens: ");
    cost = simple;
    cost.points[1].us = 99;
    assert_refused(&cost, "points[1].us: ");
    cost = simple;
    cost.n_points = SCHED_COST_MAX_POINTS + 1;
    assert_refused(&cost, "n_points: ");
    cost = (struct sched_cost){0};
    assert_int_equal(sched_cost_check(&cost, NULL), QUIRE_OK);
}

/* The parts of a step's rows are the step. */
static void rows_add_up(void **state)
{
    (void)state;
    const uint32_t rows[][3] = {{0, 5, 1}, {100, 1, 1}, {7, 3, 0}};
    struct sched_shape shape = {.n_block_copies = 2};
    double sum = 0;
    for (size_t i = 0; i < 3; i++)
        sched_shape_add(&shape, rows[i][0], rows[i][1], rows[i][2]);
    for (size_t i = 0; i < 3; i++)
        sum += sched_cost_own_us(&simple, rows[i][0], rows[i][1], rows[i][2]) +
               sched_cost_token_us(&simple, &shape) * rows[i][1];
    assert_true(fabs(sum - sched_cost_us(&simple, &shape)) < 1e-9);
    assert_true(sched_cost_own_us(&simple, 100, 1, 1) == 2 + 0.5 + 101 * 0.25 + 101 * 0.125);
    assert_true(sched_cost_token_us(&simple, &(struct sched_shape){.n_tokens = 4, .n_block_copies = 1}) == 122.0 / 4);
    assert_true(sched_cost_token_us(&simple, &(struct sched_shape){0}) == 0);
}

static void least_token_and_quantum(void **state)
{
    (void)state;
    assert_true(sched_cost_least_token_us(&simple, 1) == 100);
    assert_true(sched_cost_least_token_us(&simple, 4) == 115.0 / 4);
    assert_true(sched_cost_least_token_us(&simple, 10) == 22); /* 24 at 5 tokens */
    const struct sched_cost rising = {.n_points = 3, .points = {{1, 1}, {2, 1}, {3, 9}}};
    assert_true(sched_cost_least_token_us(&rising, 3) == 0.5);
    assert_true(sched_cost_quantum_us(&simple) == 1000); /* eight steps would be 800 */
    assert_true(sched_cost_quantum_us(&(struct sched_cost){.n_points = 1, .points = {{1, 200}}}) == 1600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_interpolated),
        cmocka_unit_test(rows_add_up),
        cmocka_unit_test(least_token_and_quantum),
        cmocka_unit_test(a_step_by_hand),
        cmocka_unit_test(huge_costs_stay_convertible),
        cmocka_unit_test(fit_is_the_largest_count_within_the_target),
        cmocka_unit_test(fit_is_exact_at_the_border),
        cmocka_unit_test(more_never_costs_less),
        cmocka_unit_test(rounding_makes_no_point_a_peak),
        cmocka_unit_test(a_prompt_is_the_sum_of_its_steps),
        cmocka_unit_test(the_member_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
