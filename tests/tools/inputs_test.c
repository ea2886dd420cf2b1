#include "tests/tools/bench_test.h"

#include "tools/bench/lib/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL QUIRE_SOURCE_DIR "/tools/demo_model/model"

static struct bench_inputs *open_inputs(const struct bench_input_options *options,
                                        const struct bench_input_bounds *bounds)
{
    struct bench_inputs *in;
    struct quire_error err;
    if (bench_inputs_open(options, bounds, &in, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return in;
}

static uint32_t *ids_of(const struct bench_inputs *in, size_t i)
{
    uint32_t *ids = malloc(in->items[i].n_prompt * sizeof *ids);
    bench_inputs_ids(in, i, ids);
    return ids;
}

/* The number of ids that two prompts share from their beginning. */
static size_t common(const struct bench_inputs *a, size_t i, const struct bench_inputs *b, size_t j)
{
    uint32_t *x = ids_of(a, i), *y = ids_of(b, j);
    size_t n = 0;
    while (n < a->items[i].n_prompt && n < b->items[j].n_prompt && x[n] == y[n])
        n++;
    free(x);
    free(y);
    return n;
}

static void write_file(char path[64], const char *text)
{
    strcpy(path, "/tmp/quire-bench-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void random_is_a_function_of_the_seed(void **state)
{
    (void)state;
    struct bench_input_options o;
    bench_input_options_default(&o);
    o.num_prompts = 200;
    o.range_ratio = 0.5;
    struct bench_input_bounds bounds = {.vocab_size = 300, .max_model_len = 288, .seed = 7};
    struct bench_inputs *a = open_inputs(&o, &bounds), *b = open_inputs(&o, &bounds);
    bounds.seed = 8;
    struct bench_inputs *c = open_inputs(&o, &bounds);
    uint32_t low = UINT32_MAX, high = 0, n_same = 0, largest = 0;
    for (size_t i = 0; i < a->n; i++) {
        uint32_t n = a->items[i].n_prompt, *ids = ids_of(a, i);
        assert_int_equal(n, b->items[i].n_prompt);
        assert_int_equal(a->items[i].n_output, b->items[i].n_output);
        assert_in_range(a->items[i].n_output, 32, 96);
        assert_int_equal(common(a, i, b, i), n);
        assert_true(common(a, i, c, i) < 8 && (i == 0 || common(a, i, a, i - 1) < 8));
        n_same += n == c->items[i].n_prompt;
        low = n < low ? n : low;
        high = n > high ? n : high;
        for (uint32_t k = 0; k < n; k++)
            largest = ids[k] > largest ? ids[k] : largest;
        free(ids);
    }
    /* 200 of 129 lengths: all within bounds, and near both. */
    assert_in_range(low, 64, 70);
    assert_in_range(high, 186, 192);
    assert_in_range(largest, 290, 299);
    assert_true(n_same < 20);
    bench_inputs_close(a);
    bench_inputs_close(b);
    bench_inputs_close(c);
}

static void prefixes_are_shared(void **state)
{
    (void)state;
    struct bench_input_options o;
    bench_input_options_default(&o);
    o.dataset = "prefix-repetition";
    o.num_prompts = 6;
    o.num_prefixes = 3;
    o.prefix_len = 40;
    o.suffix_len = 20;
    const struct bench_input_bounds bounds = {.vocab_size = 1000};
    struct bench_inputs *in = open_inputs(&o, &bounds);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(in->items[i].n_prompt, 60);
        for (size_t j = 0; j < i; j++) {
            size_t n = common(in, i, in, j);
            if (i % 3 == j % 3)
                assert_in_range(n, 40, 43);
            else
                assert_in_range(n, 0, 3);
        }
    }
    bench_inputs_close(in);
}

static void a_trace_keeps_times_and_prefixes(void **state)
{
    (void)state;
    char path[64];
    write_file(path, "{\"timestamp\": 0, \"input_length\": 5000, \"output_length\": 9}\n"
                     "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 10, \"hash_ids\": [1, 2, 3]}\n"
                     "{\"timestamp\": 3000, \"input_length\": 1200, \"output_length\": 11, \"hash_ids\": [1, 2, 4]}\n"
                     "{\"timestamp\": 4000, \"input_length\": 100, \"output_length\": 12, \"hash_ids\": [3]}\n"
                     "{\"timestamp\": 9000, \"input_length\": 100, \"output_length\": 12}\n");
    struct bench_input_options o;
    bench_input_options_default(&o);
    o.dataset = "trace";
    o.path = path;
    o.num_prompts = 3;
    o.rate_scale = 2;
    const struct bench_input_bounds bounds = {.vocab_size = 1000, .max_model_len = 2048};
    struct bench_inputs *in = open_inputs(&o, &bounds);
    assert_int_equal(in->n, 3);
    assert_int_equal(in->n_left_out, 1);
    assert_true(in->is_timed);
    double at[3];
    bench_inputs_arrivals(in, 100, 1, 0, at); /* has its own times: the rate does not count */
    assert_true(at[0] == 0 && fabs(at[1] - 1) < 1e-9 && fabs(at[2] - 1.5) < 1e-9);
    assert_int_equal(in->items[0].n_output, 10);
    assert_int_equal(in->items[2].n_output, 12);
    assert_in_range(common(in, 0, in, 1), 1024, 1026);
    uint32_t *first = ids_of(in, 0), *third = ids_of(in, 2);
    assert_memory_equal(first + 1024, third, 76 * sizeof *first); /* block 3, wherever it is */
    free(first);
    free(third);
    char *text = bench_inputs_text(in, 0), *other = bench_inputs_text(in, 1);
    assert_memory_equal(text, other, 1024 * 3); /* words are at least two letters and a space */
    size_t n_words = 1;
    for (const char *c = text; *c; c++)
        n_words += *c == ' ';
    assert_int_equal(n_words, 1100);
    free(text);
    free(other);
    bench_inputs_close(in);
    unlink(path);
}

static void lengths_alone(void **state)
{
    (void)state;
    char path[64];
    write_file(path, "num_prefill_tokens,num_decode_tokens\n30,5\n31,6\n");
    struct bench_input_options o;
    bench_input_options_default(&o);
    o.dataset = "sharegpt";
    o.path = path;
    const struct bench_input_bounds bounds = {.vocab_size = 1000};
    struct bench_inputs *in = open_inputs(&o, &bounds);
    assert_int_equal(in->n, 2);
    assert_false(in->is_timed);
    assert_int_equal(in->items[1].n_prompt, 31);
    assert_int_equal(in->items[1].n_output, 6);
    bench_inputs_close(in);
    o.output_len = 3;
    o.has_output_len = true;
    in = open_inputs(&o, &bounds);
    assert_int_equal(in->items[1].n_output, 3);
    bench_inputs_close(in);

    struct quire_error err;
    o.dataset = "trace";
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "no times"));
    unlink(path);
}

static void conversations_are_counted_in_tokens(void **state)
{
    (void)state;
    char path[64];
    write_file(
        path,
        " [{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"Once upon a time there was a cat.\"},"
        "  {\"from\": \"gpt\", \"value\": \"The cat had a red ball and it was happy.\"}, {\"value\": \"more\"}]},"
        " {\"id\": \"alone\", \"conversations\": [{\"from\": \"human\", \"value\": \"Nobody answers this question.\"}]},"
        " {\"id\": \"short\", \"conversations\": [{\"value\": \"a\"}, {\"value\": \"b\"}]},"
        " {\"id\": \"terse\", \"conversations\": [{\"value\": \"a\"}, {\"value\": \"This answer is long enough to count.\"}]},"
        " 7, {\"conversations\": {}}]");
    struct bench_input_options o;
    struct bench_inputs *in;
    struct quire_error err;
    bench_input_options_default(&o);
    o.dataset = "sharegpt";
    o.path = path;
    struct bench_input_bounds bounds = {.vocab_size = 2048};
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--tokenizer"));
    struct quire_text *text;
    assert_int_equal(quire_text_open(MODEL, &text, &err), QUIRE_OK);
    bounds.text = text;
    in = open_inputs(&o, &bounds);
    assert_int_equal(in->n, 1);
    char *prompt = bench_inputs_text(in, 0);
    assert_string_equal(prompt, "Once upon a time there was a cat.");
    free(prompt);
    uint32_t *expected, *ids = ids_of(in, 0);
    size_t n;
    assert_int_equal(quire_text_encode(text, in->items[0].text, strlen(in->items[0].text), true, &expected, &n, NULL),
                     QUIRE_OK);
    assert_int_equal(in->items[0].n_prompt, n);
    assert_memory_equal(ids, expected, n * sizeof *ids);
    assert_in_range(in->items[0].n_output, 8, 20);
    free(ids);
    free(expected);
    bench_inputs_close(in);
    quire_text_close(text);
    unlink(path);
}

static void arrivals_have_the_rate_and_the_shape(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double at[N];
    static const double shapes[] = {0.25, 1, 4};
    struct bench_input_options o;
    bench_input_options_default(&o);
    o.num_prompts = N;
    o.input_len = 1;
    const struct bench_input_bounds bounds = {.vocab_size = 1000};
    struct bench_inputs *in = open_inputs(&o, &bounds);
    for (int s = 0; s < 3; s++) {
        double squares = 0, last = 0;
        bench_inputs_arrivals(in, 50, shapes[s], 3, at);
        for (size_t i = 0; i < N; i++) {
            assert_true(at[i] >= last);
            squares += (at[i] - last) * (at[i] - last);
            last = at[i];
        }
        assert_true(fabs(last - N / 50.0) < 1e-6);
        /* A gamma gap's variance is mean² / shape. Its estimate has a relative deviation of
         * sqrt((2 + 6 / shape) / N): 0.036 at most here; four of them are allowed. */
        double mean = 1 / 50.0, shape = mean * mean / (squares / N - mean * mean);
        assert_true(fabs(shape / shapes[s] - 1) < 4 * sqrt((2 + 6 / shapes[s]) / N));
    }
    bench_inputs_arrivals(in, INFINITY, 1, 3, at);
    assert_true(at[0] == 0 && at[N - 1] == 0);
    bench_inputs_close(in);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    struct bench_input_options o;
    struct bench_inputs *in;
    struct quire_error err;
    const struct bench_input_bounds bounds = {.vocab_size = 1000, .max_model_len = 191};
    bench_input_options_default(&o);
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "191"));
    o.dataset = "prefix-repetition";
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    o.dataset = "sonnet";
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "sonnet"));
    o.dataset = "trace";
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--dataset-path"));
    char path[64];
    write_file(path, "input_toks,output_toks,arrival_time_ns\n190,2,0\n");
    o.path = path;
    assert_int_equal(bench_inputs_open(&o, &bounds, &in, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "no request fits"));
    unlink(path);
}

int run_inputs_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_is_a_function_of_the_seed),    cmocka_unit_test(prefixes_are_shared),
        cmocka_unit_test(a_trace_keeps_times_and_prefixes),    cmocka_unit_test(lengths_alone),
        cmocka_unit_test(conversations_are_counted_in_tokens), cmocka_unit_test(arrivals_have_the_rate_and_the_shape),
        cmocka_unit_test(what_does_not_fit_is_said),
    };
    return cmocka_run_group_tests_name("bench inputs", tests, NULL, NULL);
}
