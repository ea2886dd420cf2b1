/* Cost models as files: a written model is read back to the bit, and errors are named. */
#include "tests/tools/bench_test.h"

#include "app/flags/cost_models.h"
#include "tools/bench/lib/cost_links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    char path[] = "/tmp/quire-cost-XXXXXX";
    struct quire_error err;
    struct sched_cost cost = {.n_points = SCHED_COST_MAX_POINTS,
                              .row_us = 1.0 / 3,
                              .logit_us = 1e-300,
                              .context_us = 0.1,
                              .pair_us = 12345.678901234567,
                              .block_copy_us = 7},
                      got;
    const struct cost_shape shape = {24, 896, 151936, 64, "a \"test\""};
    struct cost_shape got_shape;
    for (uint32_t i = 0; i < cost.n_points; i++) {
        cost.points[i].n_tokens = i == SCHED_COST_MAX_POINTS - 1 ? UINT32_MAX : i * i + 1;
        cost.points[i].us = 100 + i / 7.0;
    }
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(cost_file_write(path, &cost, "a \"test\"", &shape, &err), QUIRE_OK);
    assert_int_equal(cost_file_read(path, &got, &got_shape, &err), QUIRE_OK);
    unlink(path);
    assert_int_equal(got.n_points, cost.n_points);
    for (uint32_t i = 0; i < cost.n_points; i++) {
        assert_int_equal(got.points[i].n_tokens, cost.points[i].n_tokens);
        assert_true(got.points[i].us == cost.points[i].us);
    }
    assert_true(got.row_us == cost.row_us && got.logit_us == cost.logit_us);
    assert_true(got.context_us == cost.context_us && got.pair_us == cost.pair_us);
    assert_true(got.block_copy_us == cost.block_copy_us);
    assert_memory_equal(&got_shape, &shape, sizeof shape);
    assert_int_equal(cost_file_read(path, &got, NULL, &err), QUIRE_NOT_FOUND);
    assert_int_equal(cost_file_write("/dev/null/cost.json", &cost, NULL, NULL, &err), QUIRE_IO);
    assert_non_null(strstr(err.text, "/dev/null/cost.json"));
}

static void the_member_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{", "cost: not valid JSON"},
        {"[]", "cost: must be a JSON object"},
        {"{}", "cost: points: is missing"},
        {"{\"points\": []}", "cost: points: is missing"},
        {"{\"points\": 3}", "cost: points: must be an array"},
        {"{\"points\": [3]}", "cost: points[0]: "},
        {"{\"points\": [[1, 2, 3]]}", "cost: points[0]: "},
        {"{\"points\": [[1, 2], [2.5, 3]]}", "cost: points[1]: "},
        {"{\"points\": [[1, 2], [-2, 3]]}", "cost: points[1]: "},
        {"{\"points\": [[1, 2], [4294967296, 3]]}", "cost: points[1]: "},
        {"{\"points\": [[2, 2]]}", "cost: points[0].n_tokens: "},
        {"{\"points\": [[1, 2], [1, 3]]}", "cost: points[1].n_tokens: "},
        {"{\"points\": [[1, 2], [2, 1]]}", "cost: points[1].us: "},
        {"{\"points\": [[1, -2]]}", "cost: points[0].us: "},
        {"{\"points\": [[1, 2]], \"row_us\": -1}", "cost: row_us: "},
        {"{\"points\": [[1, 2]], \"pair_us\": \"1\"}", "cost: pair_us: "},
        {"{\"points\": [[1, 2]], \"about\": 1}", "cost: about: "},
        {"{\"points\": [[1, 2]], \"rows_us\\u001b\": 1}", "cost: \"rows_us?\" is not a member"},
        {"{\"points\": [[[[1]]]]}", "cost: nested"},
        {"{\"points\": [[1, 2]], \"model\": 3}", "cost: model: must be"},
        {"{\"points\": [[1, 2]], \"model\": {\"n_layers\": 2, \"hidden_size\": 4}}", "cost: model: must be"},
        {"{\"points\": [[1, 2]], \"model\": {\"n_layers\": 2, \"hidden_size\": 0, \"vocab_size\": 9}}",
         "cost: model.hidden_size: must be a whole number"},
        {"{\"points\": [[1, 2]], \"model\": {\"n_layers\": 2, \"hidden_size\": 4, \"vocab\": 9}}",
         "cost: model.vocab_size: must be a whole number"},
        {"{\"points\": [[1, 2]], \"micro_batch_tokens\": 0}", "cost: micro_batch_tokens: must be a whole number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct sched_cost got = {.n_points = 77};
        struct quire_error err;
        assert_int_equal(cost_file_parse(wrong[i].text, strlen(wrong[i].text), "cost", &got, NULL, &err),
                         QUIRE_INVALID);
        assert_ptr_equal(strstr(err.text, wrong[i].says), err.text);
        assert_int_equal(got.n_points, 77);
    }
}

static void too_many_points_are_refused(void **state)
{
    (void)state;
    char text[1024] = "{\"points\": [[1, 1]";
    struct sched_cost got;
    struct quire_error err;
    for (int i = 1; i <= SCHED_COST_MAX_POINTS; i++)
        sprintf(text + strlen(text), ", [%d, 1]", i + 1);
    strcat(text, "]}");
    assert_int_equal(cost_file_parse(text, strlen(text), "cost", &got, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "points: at most 24, got 25"));
}

/* The formulas of the header, computed in Python. */
static void the_default_is_what_its_formulas_say(void **state)
{
    (void)state;
    struct sched_cost model;
    const struct cost_model *named;
    size_t n;
    assert_int_equal(cost_model_read(cost_models(&n)->name, &model, NULL, &named, NULL), QUIRE_OK);
    const struct sched_cost *cost = &model;
    assert_int_equal(sched_cost_check(cost, NULL), QUIRE_OK);
    static const struct {
        struct sched_shape shape;
        double us;
    } cases[] = {
        {{.n_rows = 1, .n_tokens = 1}, 6368.159},
        {{.n_rows = 1, .n_tokens = 2000}, 80000},
        {{.n_rows = 1, .n_tokens = 20000}, 800000},
        {{.n_context = 1000000}, 48907.46},
        {{.n_pairs = 1000000}, 1310.72},
        {{.n_block_copies = 1000}, 41943.04},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double us = sched_cost_us(cost, &cases[i].shape), off = us / cases[i].us - 1;
        assert_true(off > -0.002 && off < 0.002); /* the constants are rounded to three digits */
    }
}

static void every_name_is_a_model_of_a_machine(void **state)
{
    (void)state;
    size_t n;
    const struct cost_model *models = cost_models(&n), *named;
    struct sched_cost cost;
    struct cost_shape shape;
    struct quire_error err;
    assert_true(n > 1 && !models[0].is_measured);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(cost_model_read(models[i].name, &cost, &shape, &named, &err), QUIRE_OK);
        assert_ptr_equal(named, &models[i]);
        assert_true(shape.n_layers > 0 && strlen(shape.about) > 20 && strlen(shape.about) < sizeof shape.about - 1);
        assert_true(models[i].is_measured == (strstr(shape.about, "off on steps that it was not fitted on") != NULL));
        assert_true((strstr(models[i].name, "predicted") == NULL) == models[i].is_measured);
        assert_null(strchr(shape.about, '?'));
    }
    assert_int_equal(cost_model_read("demo-cpus", &cost, &shape, &named, &err), QUIRE_INVALID);
    for (size_t i = 0; i < n; i++)
        assert_non_null(strstr(err.text, models[i].name));
}

/* Computed by hand from the header's formulas. */
static void ranks_divide_and_tell_each_other(void **state)
{
    (void)state;
    const struct cost_shape shape = {.n_layers = 10, .hidden_size = 1000, .vocab_size = 100000};
    const struct sched_cost one = {.n_points = 2,
                                   .points = {{1, 1000}, {101, 9000}},
                                   .row_us = 3,
                                   .logit_us = 8,
                                   .context_us = 0.5,
                                   .pair_us = 0.25,
                                   .block_copy_us = 12};
    struct sched_cost cost = one;
    struct cost_link room;
    const struct cost_link *link = cost_link_find("5,40", &room); /* 40,000 bytes a us */
    struct quire_error err;
    assert_int_equal(cost_share(&cost, &shape, 4, link, &err), QUIRE_OK);
    /* 20 sums of 4,000 bytes per token; a rank moves 1.5 times as much */
    assert_true(fabs(cost.points[0].us - (250 + 20 * (5 + 1.5 * 4000 / 40000))) < 1e-9);
    assert_true(fabs(cost.points[1].us - (2250 + 20 * (5 + 1.5 * 404000 / 40000))) < 1e-9);
    assert_true(fabs(cost.logit_us - (2 + 5 + 300000 / 40000.0)) < 1e-9);
    assert_true(cost.row_us == 3 && cost.context_us == 0.125 && cost.pair_us == 0.0625 && cost.block_copy_us == 3);
    /* The fit reproduces the measurements: 4 KiB, 64 KiB and 4 MiB of two ranks over shared memory. */
    const struct cost_link *memory = cost_link_find("shared-memory", &room);
    const double measured[][2] = {{4096, 1.4}, {65536, 10.8}, {4194304, 550.5}};
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(cost_all_reduce_us(memory, 2, measured[i][0]) / measured[i][1] - 1) < 0.15);
    static const char *const wrong[] = {"",       "ib",    "5",     "5,",       ",5",     "-1,5",
                                        "5,0",    "5,40x", "5,nan", "inf,5",    "5,1e30", " 5,100",
                                        "5, 100", "0x5,1", "5,0X1", "1,1e-300", "+5,1",   "5,1e7"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_null(cost_link_find(wrong[i], &room));
}

int run_cost_file_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(ranks_divide_and_tell_each_other),
        cmocka_unit_test(the_member_is_named),
        cmocka_unit_test(too_many_points_are_refused),
        cmocka_unit_test(every_name_is_a_model_of_a_machine),
        cmocka_unit_test(the_default_is_what_its_formulas_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
