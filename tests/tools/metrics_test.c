#include "tests/tools/bench_test.h"

#include "tools/bench/lib/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}
#define NEAR(a, b) assert_true(near(a, b))

static struct bench_metrics_options parse(const char *shown, const char *percentiles)
{
    struct bench_metrics_options o;
    struct quire_error err;
    assert_int_equal(bench_metrics_options_parse(shown, percentiles, NULL, 0, &o, &err), QUIRE_OK);
    return o;
}

/* numpy.percentile([1, 2, 4, 8, 16], p), numpy.std */
static void percentiles_are_numpys(void **state)
{
    (void)state;
    double v[] = {16, 1, 8, 2, 4};
    bench_sort(v, 5);
    NEAR(bench_percentile(v, 5, 0), 1);
    NEAR(bench_percentile(v, 5, 10), 1.4);
    NEAR(bench_percentile(v, 5, 50), 4);
    NEAR(bench_percentile(v, 5, 90), 12.8);
    NEAR(bench_percentile(v, 5, 99), 15.68);
    NEAR(bench_percentile(v, 5, 99.9), 15.968);
    NEAR(bench_percentile(v, 5, 100), 16);
    NEAR(bench_percentile(v, 1, 37), 1);
    NEAR(bench_percentile(v, 2, 50), 1.5);
    NEAR(bench_percentile(v, 0, 50), 0);
    NEAR(bench_mean(v, 5), 6.2);
    NEAR(bench_std(v, 5), 5.455272678794342);
    NEAR(bench_std(v, 0), 0);
}

/* Three requests that overlap, one of one token, one that failed. */
static struct bench_result *make_results(void)
{
    struct bench_result *r = calloc(4, sizeof *r);
    const double itls[] = {0.1, 0.3, 0.2};
    r[0] = (struct bench_result){.ok = true, .start_s = 0, .ttft_s = 0.5, .e2el_s = 1.1, .n_prompt = 10, .n_output = 4};
    r[1] = (struct bench_result){.ok = true, .start_s = 1, .ttft_s = 0.2, .e2el_s = 0.2, .n_prompt = 20, .n_output = 1};
    r[2] = (struct bench_result){.start_s = 0.5, .n_prompt = 1000, .n_output = 1000};
    r[3] = (struct bench_result){
        .ok = true, .start_s = 1.1, .ttft_s = 0.3, .e2el_s = 0.7, .n_prompt = 30, .n_output = 3};
    for (int i = 0; i < 3; i++)
        assert_int_equal(bench_result_add_itl(&r[0], itls[i], NULL), QUIRE_OK);
    assert_int_equal(bench_result_add_itl(&r[3], 0.4, NULL), QUIRE_OK); /* two tokens in one event */
    bench_result_fail(&r[2], "first");
    bench_result_fail(&r[2], "second");
    return r;
}

static void metrics_are_vllms(void **state)
{
    (void)state;
    struct bench_metrics_options o = parse("ttft,tpot,itl,e2el", "50,99");
    struct bench_result *r = make_results();
    struct bench_metrics m;
    assert_int_equal(bench_metrics_compute(r, 4, 2, &o, &m, NULL), QUIRE_OK);
    assert_int_equal(m.completed, 3);
    assert_int_equal(m.failed, 1);
    assert_string_equal(m.first_error, "first");
    assert_int_equal(m.total_input, 60);
    assert_int_equal(m.total_output, 8);
    NEAR(m.request_throughput, 1.5);
    NEAR(m.output_throughput, 4);
    NEAR(m.total_token_throughput, 34);
    NEAR(m.request_goodput, 0);
    NEAR(m.stats[BENCH_TTFT].mean_ms, 1000.0 / 3);
    NEAR(m.stats[BENCH_TTFT].median_ms, 300);
    NEAR(m.stats[BENCH_TTFT].percentiles_ms[1], 496);
    NEAR(m.stats[BENCH_TPOT].mean_ms,
         200); /* (1.1 - 0.5) / 3 and (0.7 - 0.3) / 2; a request of one token has no TPOT */
    NEAR(m.stats[BENCH_ITL].mean_ms, 250);
    NEAR(m.stats[BENCH_ITL].median_ms, 250);
    NEAR(m.stats[BENCH_ITL].std_ms, 111.80339887498948);
    NEAR(m.stats[BENCH_E2EL].mean_ms, 2000.0 / 3);
    /* 0.5, 0.6, 0.9 in the first second; 1.1, 1.2, 1.4, 1.8 in the next. */
    NEAR(m.max_output_tokens_per_s, 4);
    assert_int_equal(m.max_concurrent_requests, 2); /* at 1.1 one ends as one begins */
    bench_results_free(r, 4);
}

static void goodput_asks_all_bounds(void **state)
{
    (void)state;
    const char *const slo[] = {"ttft:400", "tpot:200", "e2el:700"};
    const double expected[] = {1, 0.5, 0.5}; /* a second of 2: with the first bound, the first two, all three */
    struct bench_result *r = make_results();
    r[3].n_output = 2; /* a TPOT of 400 ms: good in everything else */
    for (size_t n = 1; n <= 3; n++) {
        struct bench_metrics_options o;
        struct bench_metrics m;
        assert_int_equal(bench_metrics_options_parse("ttft", "50", slo, n, &o, NULL), QUIRE_OK);
        assert_int_equal(bench_metrics_compute(r, 4, 2, &o, &m, NULL), QUIRE_OK);
        NEAR(m.request_goodput, expected[n - 1]);
    }
    bench_results_free(r, 4);
}

static void nothing_completed_is_zeros(void **state)
{
    (void)state;
    struct bench_metrics_options o = parse("ttft,tpot,itl,e2el", "50");
    struct bench_result *r = calloc(1, sizeof *r);
    struct bench_metrics m;
    bench_result_fail(r, "gone");
    assert_int_equal(bench_metrics_compute(r, 1, 0, &o, &m, NULL), QUIRE_OK);
    assert_int_equal(m.completed, 0);
    NEAR(m.request_throughput, 0);
    NEAR(m.stats[BENCH_E2EL].percentiles_ms[0], 0);
    assert_int_equal(m.max_concurrent_requests, 0);
    json_t *object = json_object();
    assert_int_equal(bench_metrics_json(&m, &o, object, NULL), QUIRE_OK);
    assert_true(json_is_null(json_object_get(object, "request_goodput")));
    json_decref(object);
    bench_results_free(r, 1);
}

static void json_has_vllms_names(void **state)
{
    (void)state;
    static const char *const keys[] = {"duration",
                                       "completed",
                                       "failed",
                                       "total_input_tokens",
                                       "total_output_tokens",
                                       "request_throughput",
                                       "request_goodput",
                                       "output_throughput",
                                       "total_token_throughput",
                                       "max_output_tokens_per_s",
                                       "max_concurrent_requests",
                                       "mean_ttft_ms",
                                       "median_ttft_ms",
                                       "std_ttft_ms",
                                       "p99_ttft_ms",
                                       "p99.9_ttft_ms",
                                       "mean_e2el_ms",
                                       "p99.9_e2el_ms"};
    struct bench_metrics_options o = parse("ttft,e2el", "99,99.9");
    struct bench_result *r = make_results();
    struct bench_metrics m;
    json_t *object = json_object();
    assert_int_equal(bench_metrics_compute(r, 4, 2, &o, &m, NULL), QUIRE_OK);
    assert_int_equal(bench_metrics_json(&m, &o, object, NULL), QUIRE_OK);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_object_get(object, keys[i]))
            fail_msg("no %s", keys[i]);
    assert_null(json_object_get(object, "mean_itl_ms"));
    json_decref(object);
    bench_results_free(r, 4);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *shown, *percentiles, *goodput, *says;
    } cases[] = {
        {"ttft,latency", "50", NULL, "latency"},
        {"", "50", NULL, "--percentile-metrics"},
        {"ttft,", "50", NULL, "--percentile-metrics"},
        {"ttft", "50,101", NULL, "101"},
        {"ttft", "50,,99", NULL, "--metric-percentiles"},
        {"ttft", "nan", NULL, "nan"},
        {"ttft", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", NULL, "more than 16"},
        {"ttft", "50", "itl:3", "itl:3"},
        {"ttft", "50", "ttft", "ttft"},
        {"ttft", "50", "ttft:", "ttft:"},
        {"ttft", "50", "ttft:-1", "-1"},
        {"ttft", "50", "ttft:5x", "5x"},
        {"ttft", "50", "ttft:inf", "inf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_metrics_options o;
        struct quire_error err;
        assert_int_equal(bench_metrics_options_parse(cases[i].shown, cases[i].percentiles, &cases[i].goodput,
                                                     cases[i].goodput != NULL, &o, &err),
                         QUIRE_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say %s", err.text, cases[i].says);
    }
}

#define SPEC "vllm:spec_decode_num_"

static struct bench_drafts drafts_of(const char *text)
{
    struct bench_drafts d;
    bench_drafts_read(text, strlen(text), &d);
    return d;
}

static void drafts_are_what_came_between(void **state)
{
    (void)state;
    const struct bench_drafts before = drafts_of(SPEC "drafts_total{engine=\"0\"} 10\n" SPEC
                                                      "draft_tokens_total 40\n" SPEC "accepted_tokens_total 7.0\n");
    const struct bench_drafts after = drafts_of(
        "# TYPE " SPEC "drafts_total counter\n" SPEC "drafts_total{engine=\"0\",a=\"}\"} 25 1700000000\n" SPEC
        "drafts_total{engine=\"1\"} 5\n" SPEC "draft_tokens_total{} 8e1\n" SPEC "accepted_tokens_total 27\n" SPEC
        "accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 12\n" SPEC
        "accepted_tokens_per_pos_total{engine=\"1\",position=\"0\"} 3\n" SPEC
        "accepted_tokens_per_pos_total{position=\"1\",engine=\"0\"} 5\n" SPEC
        "accepted_tokens_per_pos_total{position=\"64\"} 5\n" SPEC "accepted_tokens_per_pos_total{position=\"2\"} x\n");
    const struct bench_drafts d = bench_drafts_between(&before, &after);
    assert_true(d.known && d.n_drafts == 20 && d.n_draft_tokens == 40 && d.n_accepted == 20);
    assert_true(d.n_places == 2 && d.accepted_at[0] == 15 && d.accepted_at[1] == 5);

    struct bench_metrics m = {.total_output = 60, .drafts = d};
    const struct bench_metrics_options options = {0};
    struct quire_error err;
    json_t *object = json_object();
    assert_int_equal(bench_metrics_json(&m, &options, object, &err), QUIRE_OK);
    NEAR(json_number_value(json_object_get(object, "spec_decode_acceptance_rate")), 50);
    NEAR(json_number_value(json_object_get(object, "spec_decode_acceptance_length")), 2);
    NEAR(json_number_value(json_object_get(object, "spec_decode_tokens_a_step")), 1.5);
    NEAR(json_number_value(json_array_get(json_object_get(object, "spec_decode_per_position_acceptance_rates"), 1)),
         0.25);
    json_decref(object);

    /* A restarted server, and servers that report less, or nonsense. */
    assert_false(bench_drafts_between(&after, &before).known);
    assert_false(drafts_of(SPEC "drafts_total 1\n" SPEC "draft_tokens_total 2\n").known);
    assert_false(
        drafts_of(SPEC "drafts_total 1\n" SPEC "draft_tokens_total 2\n" SPEC "accepted_tokens_total 1e300\n").known);
    assert_false(
        drafts_of(SPEC "drafts_total nan\n" SPEC "draft_tokens_total 2\n" SPEC "accepted_tokens_total 1\n").known);
    assert_false(drafts_of("").known);
}

int run_metrics_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_numpys),       cmocka_unit_test(metrics_are_vllms),
        cmocka_unit_test(goodput_asks_all_bounds),      cmocka_unit_test(nothing_completed_is_zeros),
        cmocka_unit_test(json_has_vllms_names),         cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(drafts_are_what_came_between),
    };
    return cmocka_run_group_tests_name("bench metrics", tests, NULL, NULL);
}
