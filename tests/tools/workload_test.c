#include "tests/tools/bench_test.h"

#include "tools/bench/lib/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_text(const char *text, struct bench_workload *t, struct quire_error *err)
{
    size_t n = strlen(text);
    char *exact = malloc(n + 1); /* no NUL after it */
    memcpy(exact, text, n);
    int status = bench_workload_read(exact, n, "t", &bench_workload_mooncake, t, err);
    free(exact);
    return status;
}

static void check_row(const struct bench_workload *t, size_t i, double arrival_s, uint32_t n_input, uint32_t n_output)
{
    assert_true(fabs(t->rows[i].arrival_s - arrival_s) < 1e-9);
    assert_int_equal(t->rows[i].n_input, n_input);
    assert_int_equal(t->rows[i].n_output, n_output);
}

static void lines_of_json(void **state)
{
    (void)state;
    struct bench_workload t;
    assert_int_equal(
        read_text("\n{\"timestamp\": 5, \"input_length\": 600, \"output_length\": 500, \"hash_ids\": [7, 8]}\r\n"
                  "{\"timestamp\": 1505.5, \"input_length\": 3, \"output_length\": 1, \"other\": {\"a\": 1}}\n",
                  &t, NULL),
        QUIRE_OK);
    assert_int_equal(t.n_rows, 2);
    assert_true(t.has_times);
    check_row(&t, 0, 0, 600, 500);
    check_row(&t, 1, 1.5005, 3, 1);
    assert_int_equal(t.rows[0].n_hashes, 2);
    assert_int_equal(t.hashes[t.rows[0].first_hash + 1], 8);
    assert_int_equal(t.rows[1].n_hashes, 0);
    bench_workload_free(&t);
}

static void timed_traces_have_seconds_and_tenants(void **state)
{
    (void)state;
    static const char text[] =
        "{\"timestamp\": 12.4, \"input_length\": 42, \"output_length\": 8, \"hash_ids\": [981, 4412]}\n"
        "{\"timestamp\": 12.9, \"input_length\": 3, \"output_length\": 1, \"tenant\": \"b\", \"class\": 7,"
        " \"priority\": -2, \"deadline_ms\": 0.5}\n"
        "{\"timestamp\": 12.9, \"input_length\": 3, \"output_length\": 1, \"tenant\": \"default\"}\n"
        "{\"timestamp\": 13, \"input_length\": 3, \"output_length\": 1, \"tenant\": \"b\"}\n";
    static const struct bench_workload_form timed = {.unit_ms = 1000, .block_tokens = 16, .own_tail = true};
    struct bench_workload t;
    assert_int_equal(bench_workload_read(text, strlen(text), "t", &timed, &t, NULL), QUIRE_OK);
    assert_int_equal(t.n_rows, 4);
    check_row(&t, 1, 0.5, 3, 1);
    assert_int_equal(t.rows[0].n_hashes, 2);
    assert_int_equal(t.n_tenants, 2);
    assert_string_equal(t.tenants[1], "b");
    const uint32_t tenants[] = {0, 1, 0, 1};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(t.rows[i].tenant, tenants[i]);
    assert_int_equal(t.rows[1].class_index, 7);
    assert_int_equal(t.rows[1].priority, -2);
    assert_true(t.rows[1].deadline_ms == 0.5);
    assert_true(t.rows[0].deadline_ms == 0);
    bench_workload_free(&t);
}

static void csv_of_any_origin(void **state)
{
    (void)state;
    struct bench_workload t;
    assert_int_equal(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59.9799600,4808,10\r\n"
                               "2024-01-01 00:00:00.0319600,3180,8\r\n2024-01-01T01:00:00+00:00,1,1",
                               &t, NULL),
                     QUIRE_OK);
    assert_int_equal(t.n_rows, 3);
    check_row(&t, 0, 0, 4808, 10);
    check_row(&t, 1, 0.052, 3180, 8);
    check_row(&t, 2, 3600.02004, 1, 1);
    bench_workload_free(&t);
    assert_int_equal(
        read_text("x,output_toks,input_toks,arrival_time_ns\n,531,2358,46926808\n?,769,1034,347938951\n", &t, NULL),
        QUIRE_OK);
    check_row(&t, 1, 0.301012143, 1034, 769);
    assert_true(t.has_times);
    bench_workload_free(&t);
    assert_int_equal(read_text("num_prefill_tokens,num_decode_tokens,pd_ratio\n3772,54,69.8\n", &t, NULL), QUIRE_OK);
    check_row(&t, 0, 0, 3772, 54);
    assert_false(t.has_times);
    bench_workload_free(&t);
}

#define HEAD "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define DAY "2023-11-16 18:17:03"

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no requests"},
        {HEAD, "no requests"},
        {"a,b\n1,2\n", "line 1"},
        {"\n\nContextTokens\n3\n", "line 3"},
        {HEAD DAY ",3\n", "line 2: has 2 columns"},
        {HEAD DAY ",3,0\n", "line 2: output tokens"},
        {HEAD DAY ",-3,1\n", "line 2: input tokens"},
        {HEAD DAY ",3,99999999999999999999\n", "line 2: output tokens"},
        {HEAD DAY ",16777217,3\n", "16777217"},
        {HEAD DAY ",,3\n", "line 2: input tokens"},
        {HEAD DAY ",\x1b[2J,3\n", "?[2J"},
        {HEAD DAY ",4,3\n2023-11-16 18:17:02,4,3\n", "line 3: is earlier"},
        {HEAD "yesterday,4,3\n", "yesterday"},
        {HEAD DAY "+02:00,4,3\n", "+02:00"},
        {HEAD "1969-12-31 23:59:59,4,3\n", "1969"},
        {HEAD "2023-11-16,4,3\n", "TIMESTAMP"},
        {HEAD "2023-11-16 18:17:03 and a day that is much too long for any date,4,3\n", "TIMESTAMP"},
        {"arrival_time_ns,input_toks,output_toks\n9223372036854775808,1,1\n", "arrival_time_ns"},
        {"{\"timestamp\": 0}\n", "line 1: must have"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4}\n{}\n", "line 2: must have"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4\n", "line 1: not valid JSON"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": \"4\"}\n", "line 1: output_length"},
        {"{\"timestamp\": -1, \"input_length\": 3, \"output_length\": 4}\n", "line 1: timestamp"},
        {"{\"timestamp\": 1e300, \"input_length\": 3, \"output_length\": 4}\n", "line 1: timestamp"},
        {"{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 4, \"hash_ids\": [1]}\n",
         "line 1: hash_ids: 1 blocks"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"hash_ids\": [\"a\"]}\n", "element 0"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"hash_ids\": 1}\n", "hash_ids"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"tenant\": \"\"}\n", "line 1: tenant"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"tenant\": \"a b\"}\n", "line 1: tenant"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"class\": 8}\n", "line 1: class"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4, \"deadline_ms\": -1}\n", "line 1: deadline_ms"},
        {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 4}\n[1]\n", "line 2: must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_workload t;
        struct quire_error err;
        assert_int_equal(read_text(cases[i].text, &t, &err), QUIRE_INVALID);
        if (!strstr(err.text, cases[i].says) || strncmp(err.text, "t: ", 3) != 0)
            fail_msg("\"%s\" does not say %s", err.text, cases[i].says);
        bench_workload_free(&t);
    }
}

static void many_rows_and_hashes(void **state)
{
    (void)state;
    enum { N = 5000 };
    char *text = malloc(N * 120), *at = text;
    struct bench_workload t;
    for (int i = 0; i < N; i++)
        at += sprintf(at, "{\"timestamp\": %d, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [%d, %d]}\n",
                      i, i, -i);
    assert_int_equal(bench_workload_read(text, (size_t)(at - text), "t", &bench_workload_mooncake, &t, NULL), QUIRE_OK);
    assert_int_equal(t.n_rows, N);
    for (size_t i = 0; i < N; i++) {
        check_row(&t, i, (double)i * 1e-3, 1024, 1);
        assert_int_equal(t.hashes[t.rows[i].first_hash], i);
        assert_int_equal((int64_t)t.hashes[t.rows[i].first_hash + 1], -(int64_t)i);
    }
    bench_workload_free(&t);
    free(text);
}

static void files_that_are_none(void **state)
{
    (void)state;
    char *text;
    size_t n;
    struct quire_error err;
    assert_int_equal(bench_read_file("/", 10, &text, &n, &err), QUIRE_NOT_FOUND);
    assert_int_equal(bench_read_file(QUIRE_SOURCE_DIR "/absent", 10, &text, &n, &err), QUIRE_NOT_FOUND);
    assert_int_equal(bench_read_file(QUIRE_SOURCE_DIR "/LICENSE", 10, &text, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "larger than 10"));
}

int run_workload_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_json),        cmocka_unit_test(timed_traces_have_seconds_and_tenants),
        cmocka_unit_test(csv_of_any_origin),    cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(many_rows_and_hashes), cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests_name("bench workload", tests, NULL, NULL);
}
