/* Assignment to arms, variables that differ, and the identity of a run. The expected arms come from Python's hashlib and math. */
#include "server/gateway/experiment/assign.h"
#include "server/gateway/experiment/trial.h"
#include "server/gateway/experiment/variables.h"
#include "server/gateway/file/models_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct gateway_config *config_of(const char *text)
{
    const struct gateway_config *config;
    struct quire_error err = {.text = ""};
    if (models_file_parse(text, strlen(text), "f.yaml", &config, &err) != QUIRE_OK)
        fail_msg("%s\n%s", err.text, text);
    return config;
}

/* ---- assignment ----------------------------------------------------------------------------- */

static struct gateway_experiment of(const struct gateway_arm *arms, uint32_t n)
{
    return (struct gateway_experiment){.arms = arms, .n_arms = n};
}

static void known_arms(void **state)
{
    static const struct gateway_arm two[] = {{.name = "control", .weight = 9}, {.name = "new", .weight = 1}};
    static const struct gateway_arm three[] = {
        {.name = "a", .weight = 1}, {.name = "b", .weight = 2}, {.name = "c", .weight = 3}};
    static const struct {
        const char *unit, *of_two, *of_three;
        uint32_t bucket;
    } rows[] = {
        {"alice", "control", "a", 217}, {"bob", "control", "a", 134},   {"carol", "control", "b", 75},
        {"dave", "control", "c", 190},  {"erin", "control", "a", 223},  {"frank", "control", "b", 91},
        {"", "control", "b", 1},        {"user-12345", "new", "b", 76}, {"u17", "control", "c", 83},
        {"u42", "new", "c", 35},
    };
    const struct gateway_experiment first = of(two, 2), second = of(three, 3);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *unit = rows[i].unit;
        const size_t n = strlen(unit);
        assert_string_equal(two[assign_arm(&first, "chat", unit, n)].name, rows[i].of_two);
        assert_string_equal(three[assign_arm(&second, "chat", unit, n)].name, rows[i].of_three);
        assert_int_equal(assign_bucket("chat", unit, n), rows[i].bucket);
    }
}

#define N_USERS 20000

/* Shares follow the weights, and a change moves no more users than it must. */
static void weights(void **state)
{
    const struct gateway_arm before[] = {
        {.name = "a", .weight = 5}, {.name = "b", .weight = 3}, {.name = "c", .weight = 2}};
    const struct gateway_arm after[] = {
        {.name = "a", .weight = 5}, {.name = "b", .weight = 3}, {.name = "c", .weight = 12}};
    const struct gateway_experiment old = of(before, 3), new = of(after, 3);
    int counts[3] = {0}, moved = 0, buckets[ASSIGN_BUCKETS] = {0};
    char unit[24];
    (void)state;
    for (int i = 0; i < N_USERS; i++) {
        const size_t n = (size_t)snprintf(unit, sizeof unit, "user-%d", i);
        const uint32_t was = assign_arm(&old, "x", unit, n), is = assign_arm(&new, "x", unit, n);
        counts[was]++;
        buckets[assign_bucket("x", unit, n)]++;
        moved += was != is;
        assert_true(was == is || is == 2); /* only to the arm that grew */
    }
    /* Five standard deviations of a binomial distribution are at most 354. */
    assert_in_range(counts[0], 10000 - 354, 10000 + 354);
    assert_in_range(counts[1], 6000 - 354, 6000 + 354);
    assert_in_range(counts[2], 4000 - 354, 4000 + 354);
    assert_in_range(moved, 8000 - 354, 8000 + 354); /* c: from 20 % to 60 % */
    for (int i = 0; i < ASSIGN_BUCKETS; i++)
        assert_in_range(buckets[i], 30, 130); /* 78 on average */
}

/* Two experiments do not split users the same way, and a user's bucket says nothing about the arm. */
static void independence(void **state)
{
    const struct gateway_arm arms[] = {{.name = "a", .weight = 1}, {.name = "b", .weight = 1}};
    const struct gateway_experiment e = of(arms, 2);
    int both = 0, low = 0;
    char unit[24];
    (void)state;
    for (int i = 0; i < N_USERS; i++) {
        const size_t n = (size_t)snprintf(unit, sizeof unit, "user-%d", i);
        const uint32_t arm = assign_arm(&e, "x", unit, n);
        both += arm == assign_arm(&e, "y", unit, n);
        low += arm == 0 && assign_bucket("x", unit, n) < ASSIGN_BUCKETS / 2;
    }
    assert_in_range(both, 10000 - 354, 10000 + 354);
    assert_in_range(low, 5000 - 307, 5000 + 307);
}

/* ---- variables ------------------------------------------------------------------------------ */

#define ARMS "models:\n  x: {route: experiment, arms: {one: {model: a}, two: {model: b}}}\n"

static void variables(void **state)
{
    static const struct {
        const char *models, *names;
        uint32_t n;
    } rows[] = {
        {"  a: {targets: [{model: m}]}\n  b: {targets: [{model: m}]}\n", "", 0},
        {"  a: {targets: [{model: m}]}\n  b: {targets: [{model: n}]}\n", "model", 1},
        {"  a: {targets: [{model: m, options: {max-model-len: 1, x: 1}}]}\n"
         "  b: {targets: [{model: m, options: {x: 1, max_model_len: 1}}]}\n",
         "", 0},
        {"  a: {targets: [{model: m, options: {cache-threshold: 0.9}}]}\n"
         "  b: {targets: [{model: m, options: {cache-threshold: 0.95}}]}\n",
         "options.cache-threshold", 1},
        {"  a: {targets: [{model: m, options: {s: fcfs, t: true}}]}\n"
         "  b: {targets: [{model: m, options: {s: sjf, t: false, u: 1}}]}\n",
         "options.s, options.t, options.u", 3},
        {"  a: {targets: [{model: m, options: {l: [1, 2]}}]}\n  b: {targets: [{model: m, options: {l: [1, 3]}}]}\n",
         "options.l", 1},
        {"  a: {targets: [{url: 'http://h'}]}\n  b: {targets: [{url: 'http://h'}]}\n", "model", 1}, /* a, b */
        {"  a: {targets: [{url: 'http://h', model: m}]}\n  b: {targets: [{url: 'http://i', model: m}], max_tokens: 5}\n",
         "url, max_tokens", 2},
        {"  a: {targets: [{model: m}]}\n  b: {targets: [{url: 'http://i', model: m}]}\n", "kind of target", 1},
        {"  a: {targets: [{model: m}]}\n  b: {targets: [{model: m}, {model: m, weight: 3}]}\n", "number of targets", 1},
        {"  a: {targets: [{model: m}, {model: m}]}\n  b: {targets: [{model: m}, {model: n, weight: 3}], fallback: [a]}\n",
         "target 2: model, target 2: weight, fallback", 3},
        {"  a: {targets: [{model: m}]}\n  b: {route: latency, among: [a]}\n", "route", 1},
        {"  a: {targets: [{model: m}]}\n"
         "  b: {targets: [{model: m, options: {a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1}}]}\n",
         "options.a, options.b, options.c, options.d, options.e, options.f, options.g, options.h and 2 more", 10},
        {"  a: {targets: [{model: m}], price_per_1k: {input: 1, output: 1}}\n"
         "  b: {targets: [{model: m, name: z}], avg_latency_ms: 7, tokenizer: t}\n",
         "", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[600], warning[VARIABLES_WARNING_BYTES];
        struct buffer names = {0};
        snprintf(text, sizeof text, "%s%s", ARMS, rows[i].models);
        const struct gateway_config *c = config_of(text);
        assert_int_equal(variables_differ(c, 0, 1, &names), rows[i].n);
        assert_string_equal(names.n ? buffer_text(&names) : "", rows[i].names);
        assert_int_equal(variables_differ(c, 0, 1, NULL), rows[i].n);
        assert_int_equal(variables_differ(c, 0, 0, NULL), 0);
        assert_int_equal(variables_warn(c, 0, 1, warning), rows[i].n > 1);
        if (rows[i].n > 1)
            assert_true(strstr(warning, "model x: arm two: ") && strstr(warning, rows[i].names));
        buffer_free(&names);
        models_file_release(c);
    }
}

#define SAME "  a: {targets: [{model: m}]}\n  b: {targets: [{model: n}]}\n"

static void runs(void **state)
{
    static const struct {
        const char *text;
        bool is_same; /* as the first */
    } rows[] = {
        {ARMS SAME, true},
        {"models:\n  x: {route: experiment, metric: cost, arms: {one: {model: a}, two: {model: b}}}\n" SAME, true},
        {ARMS
         "  a: {targets: [{model: m, name: z}], avg_latency_ms: 7}\n  b: {targets: [{model: n}]}\n  c: {targets: [{model: o}]}\n",
         true},
        {"models:\n  y: {route: experiment, arms: {one: {model: a}, two: {model: b}}}\n" SAME, false},
        {"models:\n  x: {route: experiment, by: request, arms: {one: {model: a}, two: {model: b}}}\n" SAME, false},
        {"models:\n  x: {route: experiment, arms: {one: {model: a, weight: 2}, two: {model: b}}}\n" SAME, false},
        {"models:\n  x: {route: experiment, arms: {one: {model: a}, tow: {model: b}}}\n" SAME, false},
        {"models:\n  x: {route: experiment, arms: {two: {model: b}, one: {model: a}}}\n" SAME, false},
        {"models:\n  x: {route: experiment, arms: {one: {model: a}, two: {model: a}}}\n" SAME, false},
        {ARMS "  a: {targets: [{model: m}]}\n  b: {targets: [{model: n, options: {x: 1}}]}\n", false},
        {ARMS "  a: {targets: [{model: m}], max_tokens: 5}\n  b: {targets: [{model: n}]}\n", false},
        {ARMS
         "  a: {targets: [{model: m}], fallback: [c]}\n  b: {targets: [{model: n}]}\n  c: {targets: [{model: o}]}\n",
         false},
    };
    char first[VARIABLES_RUN_BYTES], run[VARIABLES_RUN_BYTES], changed[VARIABLES_RUN_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct gateway_config *c = config_of(rows[i].text);
        variables_run(c, 0, i == 0 ? first : run);
        if (i > 0)
            assert_int_equal(strcmp(run, first) == 0, rows[i].is_same);
        models_file_release(c);
    }
    assert_int_equal(strlen(first), 16);
    /* A change behind a route and a fallback is a change of the arm. */
    const struct gateway_config *c = config_of(
        ARMS "  a: {route: latency, among: [d]}\n  b: {targets: [{model: n}]}\n"
             "  d: {targets: [{model: m}], fallback: [e]}\n  e: {targets: [{model: o}]}\n");
    variables_run(c, 0, run);
    models_file_release(c);
    c = config_of(ARMS "  a: {route: latency, among: [d]}\n  b: {targets: [{model: n}]}\n"
                       "  d: {targets: [{model: m}], fallback: [e]}\n  e: {targets: [{model: p}]}\n");
    variables_run(c, 0, changed);
    models_file_release(c);
    assert_string_not_equal(run, changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_arms), cmocka_unit_test(weights),
                                       cmocka_unit_test(independence), cmocka_unit_test(variables),
                                       cmocka_unit_test(runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
