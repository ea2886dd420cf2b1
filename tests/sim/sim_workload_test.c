#include "tests/sim/sim_test.h"

#include "tools/sim/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sim_workload_options synthetic = {.format = "synthetic", .request_rate = 10, .seed = 7};

static void open_trace(const struct sim_workload_options *o, struct sim_workload *t)
{
    struct quire_error err;
    if (sim_workload_open(o, t, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
}

static struct sim_workload open_text(struct sim_workload_options o, const char *text)
{
    char path[] = "/tmp/quire_sim_XXXXXX";
    struct sim_workload t;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    o.path = path;
    open_trace(&o, &t);
    unlink(path);
    return t;
}

static uint32_t *prompt_of(const struct sim_workload *t, size_t i)
{
    uint32_t *ids = malloc(t->requests[i].n_prompt * sizeof *ids);
    assert_non_null(ids);
    sim_workload_prompt(t, i, ids);
    return ids;
}

static size_t n_shared(const struct sim_workload *t, size_t i, size_t j)
{
    uint32_t *a = prompt_of(t, i), *b = prompt_of(t, j);
    uint32_t n = t->requests[i].n_prompt < t->requests[j].n_prompt ? t->requests[i].n_prompt : t->requests[j].n_prompt;
    size_t same = 0;
    while (same < n && a[same] == b[same])
        same++;
    free(a);
    free(b);
    return same;
}

static void arrivals_have_the_rate_and_the_shape(void **state)
{
    (void)state;
    static const double shapes[] = {0.25, 1, 4};
    for (size_t s = 0; s < 3; s++) {
        struct sim_workload_options o = synthetic;
        struct sim_workload t;
        enum { N = 40000 };
        o.num_requests = N;
        o.burstiness = shapes[s];
        open_trace(&o, &t);
        assert_int_equal(t.n, N);
        double sum = 0, squares = 0;
        for (size_t i = 1; i < N; i++) {
            double gap = t.requests[i].arrival_s - t.requests[i - 1].arrival_s;
            assert_true(gap >= 0);
            sum += gap;
            squares += gap * gap;
        }
        /* Gaps of mean 1/10 and variance mean^2 / shape. Six standard errors: of the mean sqrt(1 / (shape N)); of the
         * squared deviation's, for a gamma, sqrt((2 + 6 / shape + ...) / N), below 6 / shape / sqrt(N) relative here. */
        double mean = sum / (N - 1), cv2 = (squares / (N - 1) - mean * mean) / (mean * mean);
        assert_true(fabs(mean * 10 - 1) < 6 / sqrt(shapes[s] * N));
        assert_true(fabs(cv2 * shapes[s] - 1) < 6 * (6 / shapes[s] + 2) / sqrt(N));
        sim_workload_close(&t);
    }
}

static void rates_follow_the_ramp(void **state)
{
    (void)state;
    struct sim_workload_options o = synthetic;
    struct sim_workload t;
    size_t halves[2] = {0};
    o.duration_s = 1000;
    o.ramp = "0.5:1.5";
    open_trace(&o, &t);
    for (size_t i = 0; i < t.n; i++)
        halves[t.requests[i].arrival_s >= 500]++;
    /* 3,750 and 6,250 expected, standard deviations of 61 and 79. */
    assert_in_range(halves[0], 3750 - 370, 3750 + 370);
    assert_in_range(halves[1], 6250 - 480, 6250 + 480);
    sim_workload_close(&t);
}

static void a_tenants_requests_stay_whoever_else_is_there(void **state)
{
    (void)state;
    struct sim_workload_options o = synthetic;
    struct sim_workload alone, both;
    size_t n = 0;
    o.duration_s = 50;
    o.tenants = "light:rate=3:input=10..20:output=1..3:weight=2";
    open_trace(&o, &alone);
    o.tenants =
        "heavy:rate=1:input=1000:class=3:priority=-4:deadline=250,light:rate=3:input=10..20:output=1..3:weight=2";
    open_trace(&o, &both);
    assert_int_equal(both.n_tenants, 2);
    assert_int_equal(both.tenants[1].weight, 2);
    assert_true(both.n > alone.n);
    for (size_t i = 0; i < both.n; i++) {
        const struct sim_request *r = &both.requests[i];
        if (r->tenant == 0) {
            assert_int_equal(r->n_prompt, 1000);
            assert_int_equal(r->class_index, 3);
            assert_int_equal(r->priority, -4);
            assert_true(r->deadline_ms == 250);
            continue;
        }
        assert_true(r->arrival_s == alone.requests[n].arrival_s);
        assert_int_equal(r->n_prompt, alone.requests[n].n_prompt);
        assert_int_equal(r->n_output, alone.requests[n++].n_output);
        assert_in_range(r->n_prompt, 10, 20);
        assert_in_range(r->n_output, 1, 3);
    }
    assert_int_equal(n, alone.n);
    sim_workload_close(&alone);
    sim_workload_close(&both);
}

static int by_value(const void *a, const void *b)
{
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : *(const uint32_t *)a > *(const uint32_t *)b;
}

static void lognormal_lengths_have_the_median(void **state)
{
    (void)state;
    struct sim_workload_options o = synthetic;
    struct sim_workload t;
    enum { N = 9999 };
    uint32_t lengths[N];
    o.num_requests = N;
    o.input_len = "1000~0.5";
    open_trace(&o, &t);
    for (size_t i = 0; i < N; i++)
        lengths[i] = t.requests[i].n_prompt;
    qsort(lengths, N, sizeof *lengths, by_value);
    /* The quartiles of a normal are 0.6745 from its median; errors of a quantile at N = 9,999: 1.4 sigma / sqrt(N) / density. */
    assert_in_range(lengths[N / 2], 970, 1030);
    assert_in_range(lengths[N / 4], (uint32_t)(1000 * exp(-0.5 * 0.6745) * 0.96),
                    (uint32_t)(1000 * exp(-0.5 * 0.6745) * 1.04));
    sim_workload_close(&t);
}

static void hashes_are_shared_prefixes(void **state)
{
    (void)state;
    const struct sim_workload_options o = {.format = "timed", .seed = 3};
    struct sim_workload t = open_text(
        o, "{\"timestamp\": 0, \"input_length\": 40, \"output_length\": 2, \"hash_ids\": [5, 6]}\n"
           "{\"timestamp\": 1, \"input_length\": 40, \"output_length\": 2, \"hash_ids\": [5, 6]}\n"
           "{\"timestamp\": 2, \"input_length\": 30, \"output_length\": 2, \"hash_ids\": [5, 7]}\n"
           "{\"timestamp\": 2.5, \"input_length\": 30, \"output_length\": 2}\n");
    assert_true(t.requests[2].arrival_s == 2);
    assert_int_equal(n_shared(&t, 0, 1), 32); /* two blocks of 16, then separate tails */
    assert_int_equal(n_shared(&t, 0, 2), 16);
    assert_int_equal(n_shared(&t, 0, 3), 0);
    sim_workload_close(&t);
}

static void a_partial_block_counts_as_full_when_asked(void **state)
{
    (void)state;
    struct sim_workload_options o = {.format = "mooncake"};
    static const char text[] =
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [5, 6]}\n"
        "{\"timestamp\": 9, \"input_length\": 900, \"output_length\": 2, \"hash_ids\": [5, 6]}\n";
    struct sim_workload t = open_text(o, text);
    assert_int_equal(t.requests[0].n_prompt, 600);
    assert_int_equal(n_shared(&t, 0, 1), 600);
    sim_workload_close(&t);
    o.full_blocks = true;
    o.rate_scale = 3;
    t = open_text(o, text);
    assert_int_equal(t.requests[1].n_prompt, 1025);
    assert_int_equal(n_shared(&t, 0, 1), 1024);
    assert_true(fabs(t.requests[1].arrival_s - 0.003) < 1e-12);
    sim_workload_close(&t);
}

static void tenants_of_a_file_have_their_weights(void **state)
{
    (void)state;
    struct sim_workload_options o = {.format = "timed", .tenants = "b:weight=5:deadline=70"};
    struct sim_workload t = open_text(
        o, "{\"timestamp\": 0, \"input_length\": 4, \"output_length\": 2, \"tenant\": \"a\"}\n"
           "{\"timestamp\": 0, \"input_length\": 4, \"output_length\": 2, \"tenant\": \"b\"}\n"
           "{\"timestamp\": 0, \"input_length\": 4, \"output_length\": 2, \"tenant\": \"b\", \"deadline_ms\": 30}\n");
    assert_int_equal(t.n_tenants, 3); /* "default" too */
    assert_int_equal(t.tenants[1].weight, 1);
    assert_int_equal(t.tenants[2].weight, 5);
    assert_true(t.requests[1].deadline_ms == 70);
    assert_true(t.requests[2].deadline_ms == 30);
    sim_workload_close(&t);
}

/* A file without tenants is distributed by shares; the turns of a conversation get one tenant. */
static void a_file_without_tenants_is_dealt_out(void **state)
{
    (void)state;
    enum { N = 4000 };
    char *text = malloc(N * 100), *at = text;
    struct sim_workload_options o = {.format = "mooncake", .tenants = "a:rate=3,b:rate=1"};
    uint32_t n_of_a = 0;
    for (int i = 0; i < N; i++)
        at += sprintf(at, "{\"timestamp\": %d, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [0, %d]}\n",
                      i, i / 2);
    struct sim_workload t = open_text(o, text);
    for (size_t i = 0; i < N; i += 2) {
        assert_int_equal(t.requests[i].tenant, t.requests[i + 1].tenant);
        n_of_a += t.requests[i].tenant == 0;
    }
    assert_in_range(n_of_a, 1500 - 120, 1500 + 120); /* six times sqrt(2000 x 3/16) */
    sim_workload_close(&t);
    free(text);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        struct sim_workload_options o;
        const char *says;
    } cases[] = {
        {{.format = "csv"}, "--trace-format: \"csv\""},
        {{.format = "mooncake"}, "--trace FILE is missing"},
        {{.format = "azure", .path = QUIRE_SOURCE_DIR "/absent"}, "cannot be read"},
        {{.format = "synthetic", .path = "x"}, "--trace"},
        {{.format = "synthetic", .input_len = "0"}, "--input-len: \"0\""},
        {{.format = "synthetic", .input_len = "9..3"}, "--input-len"},
        {{.format = "synthetic", .input_len = "5x"}, "--input-len"},
        {{.format = "synthetic", .output_len = "5~-1"}, "--output-len"},
        {{.format = "synthetic", .output_len = "5~nan"}, "--output-len"},
        {{.format = "synthetic", .output_len = "99999999"}, "--output-len"},
        {{.format = "synthetic", .ramp = "1"}, "--ramp"},
        {{.format = "synthetic", .ramp = "0:1"}, "--ramp"},
        {{.format = "synthetic", .tenants = ""}, "--tenants: has no tenant"},
        {{.format = "synthetic", .tenants = "a,a"}, "a occurs twice"},
        {{.format = "synthetic", .tenants = "a b"}, "--tenants: \"a b\""},
        {{.format = "synthetic", .tenants = "a:weight"}, "KEY=VALUE"},
        {{.format = "synthetic", .tenants = "a:weight=0"}, "weight=0"},
        {{.format = "synthetic", .tenants = "a:weight=1.5"}, "weight=1.5"},
        {{.format = "synthetic", .tenants = "a:class=8"}, "class=8"},
        {{.format = "synthetic", .tenants = "a:rate=-1"}, "rate=-1"},
        {{.format = "synthetic", .tenants = "a:color=1"}, "\"color\""},
        {{.format = "synthetic", .tenants = "a:input=1..x"}, "--tenants: input"},
        {{.format = "synthetic", .tenants = "a:turns=0"}, "turns=0"},
        {{.format = "synthetic", .tenants = "a:turns=10..1001"}, "turns=10..1001"},
        {{.format = "synthetic", .tenants = "a:turns=10~1"}, "turns=10~1"},
        {{.format = "synthetic", .duration_s = 5}, "--duration needs"},
        {{.format = "synthetic", .request_rate = 1, .max_model_len = 10}, "--max-model-len"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sim_workload t;
        struct quire_error err;
        assert_int_not_equal(sim_workload_open(&cases[i].o, &t, &err), QUIRE_OK);
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say %s", err.text, cases[i].says);
        sim_workload_close(&t);
    }
}

/* ---- sessions ---- */

static struct sim_workload open_sessions(const char *tenant, uint32_t num_requests)
{
    struct sim_workload_options o = synthetic;
    struct sim_workload t;
    o.tenants = tenant;
    o.num_requests = num_requests;
    open_trace(&o, &t);
    return t;
}

/* 131 prompt tokens for each token of an answer, in every session. */
static void sessions_have_the_ratio(void **state)
{
    (void)state;
    struct sim_workload t = open_sessions("a:rate=1:turns=5..60:input=2000:output=100~0.7", 20000);
    uint32_t n_sessions = 0, shortest = UINT32_MAX, longest = 0;
    for (size_t i = 0; i < t.n;) {
        double input = 0, output = 0;
        size_t first = i;
        assert_int_equal(t.requests[i].previous, 0);
        do {
            const struct sim_request *r = &t.requests[i];
            input += r->n_prompt;
            output += r->n_output;
            if (i > first) {
                assert_int_equal(r->previous, i);
                assert_true(r->n_prompt > r[-1].n_prompt + r[-1].n_output);
            }
            i++;
        } while (t.requests[i - 1].next == i + 1);
        if (i == t.n)
            break; /* cut at num_requests */
        uint32_t n_turns = (uint32_t)(i - first);
        shortest = n_turns < shortest ? n_turns : shortest;
        longest = n_turns > longest ? n_turns : longest;
        assert_true(fabs(input / output / 131 - 1) < 0.02);
        n_sessions++;
    }
    assert_int_equal(t.n, 20000);
    assert_true(n_sessions > 400);
    assert_in_range(shortest, 5, 8);
    assert_in_range(longest, 56, 60);
    sim_workload_close(&t);
}

static void sessions_return_as_clients_do(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct sim_workload t = open_sessions("a:rate=1:turns=100:input=200:output=20", N);
    double n = 0, in_1_s = 0, in_10_s = 0, longest = 0;
    for (size_t i = 0; i < t.n; i++) {
        double gap = t.requests[i].gap_s;
        if (t.requests[i].previous == 0)
            continue;
        n++;
        in_1_s += gap < 1;
        in_10_s += gap < 10;
        longest = gap > longest ? gap : longest;
    }
    assert_true(fabs(in_1_s / n - 0.865) < 6 * sqrt(0.865 * 0.135 / N));
    assert_true(fabs(in_10_s / n - 0.951) < 6 * sqrt(0.951 * 0.049 / N));
    assert_true(longest > 290 && longest <= 300);
    sim_workload_close(&t);
}

static void a_turn_begins_with_the_turn_before(void **state)
{
    (void)state;
    struct sim_workload t = open_sessions("a:rate=1:turns=4:input=300:output=10:prefix=50", 12);
    for (size_t i = 1; i < t.n; i++) {
        uint32_t before = t.requests[i - 1].n_prompt, answer = t.requests[i - 1].n_output, *ids = prompt_of(&t, i);
        size_t same = n_shared(&t, i - 1, i);
        assert_int_equal(same, t.requests[i].previous ? before : 50);
        for (uint32_t k = 0; t.requests[i].previous && k < answer; k++)
            assert_int_equal(ids[before + k], sim_workload_token((uint32_t)i - 1, k));
        free(ids);
    }
    sim_workload_close(&t);
}

/* A session ends before a turn that is too long; those after it are left out, too. */
static void long_sessions_are_cut(void **state)
{
    (void)state;
    struct sim_workload_options o = synthetic;
    struct sim_workload t;
    o.tenants = "a:rate=1:turns=20:input=300:output=10";
    o.num_requests = 200;
    o.max_model_len = 1500;
    open_trace(&o, &t);
    assert_int_equal(t.n + t.n_left_out, 200);
    assert_in_range(t.n, 60, 140);
    for (size_t i = 0; i < t.n; i++) {
        assert_true(t.requests[i].n_prompt + t.requests[i].n_output <= 1500);
        if (t.requests[i].next)
            assert_int_equal(t.requests[t.requests[i].next - 1].previous, i + 1);
    }
    sim_workload_close(&t);
}

int run_sim_workload_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_have_the_rate_and_the_shape),
        cmocka_unit_test(rates_follow_the_ramp),
        cmocka_unit_test(a_tenants_requests_stay_whoever_else_is_there),
        cmocka_unit_test(lognormal_lengths_have_the_median),
        cmocka_unit_test(hashes_are_shared_prefixes),
        cmocka_unit_test(a_partial_block_counts_as_full_when_asked),
        cmocka_unit_test(tenants_of_a_file_have_their_weights),
        cmocka_unit_test(a_file_without_tenants_is_dealt_out),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(sessions_have_the_ratio),
        cmocka_unit_test(sessions_return_as_clients_do),
        cmocka_unit_test(a_turn_begins_with_the_turn_before),
        cmocka_unit_test(long_sessions_are_cut),
    };
    return cmocka_run_group_tests_name("sim workload", tests, NULL, NULL);
}
