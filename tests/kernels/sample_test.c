/* Sampling through the public interface: distributions, kept tokens, order of the adjustments, bad rows. The table of
 * operations compares thousands of random rows with the sorting specification.
 *
 * Chi-square limits are the 1 - 10^-4 quantiles. The draws are counter-based, so a result never changes between runs.
 */
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "kernels/cases/op_sample.h"
#include "tests/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

static const char *device = "ref";
static uint32_t n_draws = 60000;
static uint32_t n_looks = 8; /* at long rows; an emulator reads a million tokens per second */
static uint32_t one_in = 1; /* the part of long tests that runs in an emulator: tests/sample.h */

struct fixture {
    struct k_backend *b;
};

static const struct k_sample_row plain = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .forced = -1};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const char *why;
    if (!f ||
        k_backend_open(&(struct k_backend_options){.device = device, .n_threads = 2}, &f->b, &why, NULL) != QUIRE_OK)
        return -1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    f->b->ops->close(f->b);
    free(f);
    return 0;
}

/* Samples n_rows rows with the same logits. */
static void sample(struct fixture *f, const float *logits, uint32_t n_vocab, const struct k_sample_row *rows,
                   uint32_t n_rows, struct k_sample_result *results)
{
    struct quire_error err;
    void *dev;
    uint64_t row_bytes = (uint64_t)n_vocab * sizeof *logits;
    const struct k_backend_ops *ops = f->b->ops;
    struct op_sampler sampler;
    assert_int_equal(op_sampler_open(&sampler, f->b, n_rows, n_vocab, &err), QUIRE_OK);
    assert_int_equal(ops->alloc(f->b, n_rows * row_bytes, &dev, &err), QUIRE_OK);
    for (uint32_t i = 0; i < n_rows; i++)
        assert_int_equal(ops->copy_in(f->b, (char *)dev + i * row_bytes, logits, row_bytes, &err), QUIRE_OK);
    assert_int_equal(ops->step_begin(f->b, &err), QUIRE_OK);
    assert_int_equal(op_sampler_run(&sampler, dev, rows, n_rows, results, &err), QUIRE_OK);
    assert_int_equal(ops->step_end(f->b, &err), QUIRE_OK);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t token;
        assert_int_equal(ops->copy_out(f->b, &token, sampler.sampled_dev + i, sizeof token, &err), QUIRE_OK);
        assert_true(results[i].bad_logits || token == results[i].token);
    }
    op_sampler_close(&sampler);
    ops->free(f->b, dev);
}

static struct k_sample_result sample_one(struct fixture *f, const float *logits, uint32_t n_vocab,
                                         struct k_sample_row row)
{
    struct k_sample_result result;
    sample(f, logits, n_vocab, &row, 1, &result);
    return result;
}

/* ---- distributions --------------------------------------------------------------------------- */

/* Draws with every position from 0. Counts by token. */
static void count_draws(struct fixture *f, const float *logits, uint32_t n_vocab, struct k_sample_row row,
                        uint32_t *counts)
{
    struct k_sample_row *rows = malloc(n_draws * sizeof *rows);
    struct k_sample_result *results = malloc(n_draws * sizeof *results);
    assert_true(rows && results);
    memset(counts, 0, n_vocab * sizeof *counts);
    for (uint32_t i = 0; i < n_draws; i++) {
        rows[i] = row;
        rows[i].position = i;
    }
    sample(f, logits, n_vocab, rows, n_draws, results);
    for (uint32_t i = 0; i < n_draws; i++) {
        assert_false(results[i].bad_logits);
        assert_true(results[i].token < n_vocab);
        counts[results[i].token]++;
    }
    free(rows);
    free(results);
}

/* Returns Σ (seen - expected)² / expected over kept tokens. Other tokens must not occur. */
static double chi_square(const float *logits, const bool *kept, uint32_t n_vocab, double temperature,
                         const uint32_t *counts)
{
    double sum = 0, chi = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += kept[i] ? exp(logits[i] / temperature) : 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (!kept[i]) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = n_draws * exp(logits[i] / temperature) / sum;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return chi;
}

/* Probabilities are about 0.37 0.30 0.02 0.11 0.05 0.11 0.03; ids 3 and 5 are equal. */
static const float seven[7] = {2.2f, 2.0f, -0.7f, 1.0f, 0.2f, 1.0f, -0.3f};

static void test_distributions(void **state)
{
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
        bool kept[7];
        double limit;
    } cases[] = {
        {1.0f, 1.0f, 0.0f, 0, {1, 1, 1, 1, 1, 1, 1}, 27.86},
        {2.5f, 1.0f, 0.0f, 0, {1, 1, 1, 1, 1, 1, 1}, 27.86},
        {0.5f, 1.0f, 0.0f, 0, {1, 1, 1, 1, 1, 1, 1}, 27.86},
        {1.0f, 1.0f, 0.0f, 3, {1, 1, 0, 1, 0, 0, 0}, 18.42}, /* of equal ones, the lower id */
        {1.0f, 0.80f, 0.0f, 0, {1, 1, 0, 1, 0, 1, 0}, 21.11},
        {1.0f, 0.75f, 0.0f, 0, {1, 1, 0, 1, 0, 0, 0}, 18.42},
        {1.0f, 0.5f, 0.0f, 0, {1, 1, 0, 0, 0, 0, 0}, 15.14},
        {1.0f, 1.0f, 0.29f, 0, {1, 1, 0, 1, 0, 1, 0}, 21.11},
        {1.0f, 0.6f, 0.29f, 3, {1, 1, 0, 0, 0, 0, 0}, 15.14},
        {1.0f, 1e-6f, 0.0f, 0, {1, 0, 0, 0, 0, 0, 0}, 0.001},
        {1.0f, 1.0f, 1.0f, 0, {1, 0, 0, 0, 0, 0, 0}, 0.001},
    };
    struct sample some = sample_of(one_in);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!sample_takes(&some))
            continue;
        struct k_sample_row row = plain;
        row.temperature = cases[i].temperature;
        row.top_p = cases[i].top_p;
        row.min_p = cases[i].min_p;
        row.top_k = cases[i].top_k;
        row.seed = 1234 + i;
        uint32_t counts[7];
        count_draws(*state, seven, 7, row, counts);
        double chi = chi_square(seven, cases[i].kept, 7, cases[i].temperature, counts);
        if (chi >= cases[i].limit)
            print_error("case %zu: chi-square %.2f, limit %.2f\n", i, chi, cases[i].limit);
        assert_true(chi < cases[i].limit);
    }
    sample_report(&some, "distributions");
}

/* top_p with a running sum that equals the share exactly, and one that misses it by one unit of 2^-40. */
static void test_top_p_to_the_unit(void **state)
{
    static const float equal[4] = {0};
    static const bool half[4] = {1, 1, 0, 0};
    struct k_sample_row row = plain;
    uint32_t counts[4];
    row.top_p = 0.5f;
    count_draws(*state, equal, 4, row, counts);
    assert_true(chi_square(equal, half, 4, 1, counts) < 15.14);

    /* Weights of 2^40 and 65,537: (1 - 2^-24) of the sum is 2^40 + 0.996, so both are kept. A draw beyond 2^40 shows
     * it. */
    static const float rare[2] = {0.0f, -0x1.0a2b0ep+4f};
    row.seed = 1;
    row.position = 6318945;
    assert_int_equal(sample_one(*state, rare, 2, row).token, 0);
    row.top_p = 0x1.fffffep-1f;
    assert_int_equal(sample_one(*state, rare, 2, row).token, 1);
    row.position++;
    assert_int_equal(sample_one(*state, rare, 2, row).token, 0);
}

/* A peak over a flat tail of 40,000, for several heights: half of the weight is the peak and the first tokens of the
 * tail. */
static void test_top_p_in_a_tail(void **state)
{
    enum { V = 40000, N = 304, PEAK = 30000 };
    const uint32_t n = n_looks * 38; /* at most N */
    static const float tails[] = {-3.0f, -6.0f, -9.0f};
    float *logits = malloc(V * sizeof *logits);
    struct k_sample_row rows[N];
    struct k_sample_result results[N];
    assert_non_null(logits);
    struct sample some = sample_of(one_in);
    for (int i = 0; i < 3; i++) {
        if (!sample_takes(&some))
            continue;
        for (uint32_t id = 0; id < V; id++)
            logits[id] = id == PEAK ? 0 : tails[i];
        for (uint32_t t = 0; t < n; t++) {
            rows[t] = plain;
            rows[t].top_p = 0.5f;
            rows[t].position = t;
        }
        sample(*state, logits, V, rows, n, results);
        double w = exp(tails[i]), kept = (0.5 * (1 + (V - 1) * w) - 1) / w;
        uint32_t largest = 0;
        for (uint32_t t = 0; t < n; t++) {
            if (results[t].token != PEAK && results[t].token > largest)
                largest = results[t].token;
        }
        assert_true(largest < kept + 1 && largest > 0.95 * kept);
    }
    sample_report(&some, "tails");
    free(logits);
}

/* Choices, seeds and positions are independent of each other: all pairs of two draws. */
static void test_draws_are_independent(void **state)
{
    enum { V = 5 };
    static const float flat[V] = {0};
    const uint32_t n_pairs = n_draws / 3 * 2;
    struct k_sample_row *rows = malloc(2 * n_pairs * sizeof *rows);
    struct k_sample_result *results = malloc(2 * n_pairs * sizeof *results);
    assert_true(rows && results);
    struct sample some = sample_of(one_in);
    for (int other = 0; other < 3; other++) {
        if (!sample_takes(&some))
            continue;
        for (uint32_t i = 0; i < 2 * n_pairs; i++) {
            rows[i] = plain;
            rows[i].seed = 99;
            rows[i].position = i / 2;
            if (i % 2 && other == 0)
                rows[i].choice = 1;
            else if (i % 2 && other == 1)
                rows[i].seed += UINT64_C(1) << 32;
            else if (i % 2)
                rows[i].position += 100000;
        }
        sample(*state, flat, V, rows, 2 * n_pairs, results);
        double cells[V * V] = {0}, chi = 0;
        for (uint32_t i = 0; i < n_pairs; i++)
            cells[results[2 * i].token * V + results[2 * i + 1].token]++;
        for (int c = 0; c < V * V; c++)
            chi += (cells[c] - n_pairs / 25.0) * (cells[c] - n_pairs / 25.0) / (n_pairs / 25.0);
        assert_true(chi < 58.61); /* 24 degrees of freedom */
    }
    sample_report(&some, "kinds of pairs");
    free(rows);
    free(results);
}

/* A draw depends only on (seed, position, choice), not on its row or the neighbouring rows. */
static void test_draw_ignores_its_place(void **state)
{
    struct k_sample_row rows[40];
    struct k_sample_result all[40];
    for (uint32_t i = 0; i < 40; i++) {
        rows[i] = plain;
        rows[i].seed = i % 7;
        rows[i].position = 1000 - i % 5;
        rows[i].choice = i % 2;
    }
    sample(*state, seven, 7, rows, 40, all);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(sample_one(*state, seven, 7, rows[i]).token, all[i].token);
}

/* ---- the largest vocabulary ------------------------------------------------------------------ */

/* S = 2^62, and half of it lies below the middle. */
static void check_equal_logits(struct fixture *f, const float *logits, uint32_t n)
{
    struct k_sample_row row = plain;
    row.n_logprobs = 1;
    uint32_t low = 0;
    for (uint32_t i = 0; i < n_looks; i++) {
        row.position = i;
        low += sample_one(f, logits, n, row).token < n / 2;
    }
    assert_true(low > 0 && low < n_looks);
    struct k_sample_result r = sample_one(f, logits, n, row);
    assert_true(r.logprob == (float)-(22 * 0x1.62e42fefa39efp-1) && r.rank == 1);
}

/* top_p of equal logits keeps exactly the first half, in rising id. */
static void check_first_half(struct fixture *f, const float *logits, uint32_t n)
{
    struct k_sample_row row = plain;
    row.n_logprobs = 1;
    row.top_p = 0.5f;
    for (uint32_t i = 0; i < n_looks / 2; i++) {
        row.position = 100 + i;
        assert_true(sample_one(f, logits, n, row).token < n / 2);
    }
}

static void test_largest_vocabulary(void **state)
{
    uint32_t n = 1u << 22;
    float *logits = calloc(n, sizeof *logits);
    assert_non_null(logits);
    struct sample some = sample_of(one_in);
    if (sample_takes(&some))
        check_equal_logits(*state, logits, n);
    if (sample_takes(&some))
        check_first_half(*state, logits, n);
    struct k_sample_row row = plain;
    row.n_logprobs = 1;
    if (sample_takes(&some)) {
        row.top_k = 3;
        assert_true(sample_one(*state, logits, n, row).token < 3);
        row.top_k = 0;
        row.top_p = 0.5f;
        logits[n - 1] = 30.0f;
        assert_int_equal(sample_one(*state, logits, n, row).token, n - 1);
    }
    sample_report(&some, "questions to the largest vocabulary");
    free(logits);
}

/* ---- greedy, bias, mask, penalties ----------------------------------------------------------- */

static struct k_sample_row greedy(void)
{
    struct k_sample_row row = plain;
    row.temperature = 0;
    return row;
}

static void test_greedy_ties(void **state)
{
    static const float z[6] = {1, 5, -2, 5, 5, 0};
    assert_int_equal(sample_one(*state, z, 6, greedy()).token, 1);
    static const float zeros[3] = {-0.0f, 0.0f, -1};
    assert_int_equal(sample_one(*state, zeros, 3, greedy()).token, 0);
    struct k_sample_row row = greedy();
    row.temperature = 0.99e-5f;
    assert_int_equal(sample_one(*state, z, 6, row).token, 1);
}

static void test_bias_and_mask(void **state)
{
    static const float z[40] = {[3] = 4, [35] = 5, [38] = 6};
    struct k_logit_bias biases[2] = {{3, 1.5f}, {38, -INFINITY}};
    struct k_sample_row row = greedy();
    row.biases = biases;
    row.n_biases = 2;
    assert_int_equal(sample_one(*state, z, 40, row).token, 3);
    uint32_t mask[2] = {~(1u << 3), 1u << 3 | 1u << 6};
    row.mask = mask;
    assert_int_equal(sample_one(*state, z, 40, row).token, 35);
    mask[1] = 1u << 6; /* 38, which the bias forbids */
    mask[0] = 0;
    assert_true(sample_one(*state, z, 40, row).bad_logits);
    row.temperature = 1;
    assert_true(sample_one(*state, z, 40, row).bad_logits);
}

static void test_penalties(void **state)
{
    static const float z[5] = {3.0f, 2.0f, -1.0f, 1.75f, -3.0f};
    struct k_token_count counts[3] = {{0, 0}, {1, 2}, {2, 1}};
    struct k_sample_row row = greedy();
    row.counts = counts;
    row.n_counts = 3;
    row.repetition_penalty = 2.0f; /* 1.5, 1, -2: prompt tokens count too */
    assert_int_equal(sample_one(*state, z, 5, row).token, 3);
    row.repetition_penalty = 1.0f;
    row.frequency_penalty = 2.0f; /* 0 occurs only in the prompt and stays */
    row.presence_penalty = 2.0f;
    assert_int_equal(sample_one(*state, z, 5, row).token, 0);
    counts[0].n_output = 1; /* 3 - 2 - 2 */
    assert_int_equal(sample_one(*state, z, 5, row).token, 3);
    row.frequency_penalty = -1.0f; /* 1: 2 + 2 - 2 = 2; 0: 3 + 1 - 2 = 2; the lower id of equals */
    assert_int_equal(sample_one(*state, z, 5, row).token, 0);
    counts[1].n_output = 3;
    assert_int_equal(sample_one(*state, z, 5, row).token, 1);
    struct k_logit_bias bias = {4, 5.5f}; /* the bias comes first: 2.5, then penalized as a positive logit */
    static const float only[5] = {-9, -9, -9, 2.0f, -3.0f};
    struct k_token_count four = {4, 0};
    row = greedy();
    row.repetition_penalty = 1.3f; /* 2.5 / 1.3 = 1.92 < 2, but 2.5 · 1.3 would win */
    row.counts = &four;
    row.n_counts = 1;
    row.biases = &bias;
    row.n_biases = 1;
    assert_int_equal(sample_one(*state, only, 5, row).token, 3);
}

/* ---- logprobs, forced tokens, bad rows ------------------------------------------------------- */

static void test_logprobs_ignore_adjustments(void **state)
{
    static const float z[4] = {0, 0, 0, -INFINITY};
    struct k_logit_bias bias = {1, 50};
    struct k_sample_row row = plain;
    row.biases = &bias;
    row.n_biases = 1;
    row.temperature = 0.1f;
    row.n_logprobs = 20;
    struct k_sample_result r = sample_one(*state, z, 4, row);
    float third = (float)-log(3.0);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.n_top, 4);
    assert_true(fabsf(r.logprob - third) <= 0x1p-23f);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r.top_ids[i], i);
        assert_true(r.top_logprobs[i] == r.logprob);
    }
    assert_int_equal(r.top_ids[3], 3);
    assert_true(r.top_logprobs[3] == -INFINITY);
}

static void test_forced(void **state)
{
    static const float z[5] = {1, 4, -INFINITY, 4, 2};
    struct k_sample_row row = plain;
    uint32_t mask[1] = {0}; /* a forced token is reported even if it is masked */
    row.mask = mask;
    row.n_logprobs = 2;
    static const uint32_t ranks[5] = {4, 1, 5, 1, 3};
    for (uint32_t token = 0; token < 5; token++) {
        row.forced = token;
        struct k_sample_result r = sample_one(*state, z, 5, row);
        assert_false(r.bad_logits);
        assert_int_equal(r.token, token);
        assert_int_equal(r.rank, ranks[token]);
        assert_true((r.logprob == -INFINITY) == (token == 2));
        assert_int_equal(r.top_ids[0], 1);
        assert_int_equal(r.top_ids[1], 3);
    }
}

static void test_bad_rows(void **state)
{
    const float bad[][3] = {{1, NAN, 2}, {INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY}, {NAN, NAN, NAN}};
    for (int i = 0; i < 4; i++) {
        assert_true(sample_one(*state, bad[i], 3, plain).bad_logits);
        assert_true(sample_one(*state, bad[i], 3, greedy()).bad_logits);
        struct k_sample_row row = plain;
        row.forced = 0;
        row.n_logprobs = 0;
        assert_true(sample_one(*state, bad[i], 3, row).bad_logits);
    }
    const float huge[3] = {3e38f, -3e38f, 1}; /* overflows when divided by T */
    struct k_sample_row cold = plain;
    cold.temperature = 0.01f;
    assert_true(sample_one(*state, huge, 3, cold).bad_logits);
    assert_int_equal(sample_one(*state, huge, 3, greedy()).token, 0);
    const float one[3] = {-INFINITY, 2, -INFINITY};
    struct k_sample_row row = plain;
    row.n_logprobs = 0;
    struct k_sample_result r = sample_one(*state, one, 3, row);
    assert_true(!r.bad_logits && r.token == 1 && r.logprob == 0 && r.n_top == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        device = argv[1];
    if (strcmp(device, "cuda") == 0) { /* the part that an emulator can run */
        n_draws = 6000 / sample_of(2).one_in;
        n_looks /= sample_of(2).one_in;
        one_in = 3;
    }
    if (SAMPLE_IS_SANITIZED) { /* a tenth of the draws detects the same faults */
        n_draws /= sample_of(10).one_in;
        one_in = 3;
    }
    struct k_backend *b;
    const char *why;
    struct quire_error err;
    int status = k_backend_open(&(struct k_backend_options){.device = device, .n_threads = 1}, &b, &why, &err);
    if (status == QUIRE_UNSUPPORTED && strcmp(device, "cpu") == 0) { /* the machine lacks the set */
        printf("skipped: backend %s: %s\n", device, err.text);
        return 77;
    }
    if (status == QUIRE_OK)
        b->ops->close(b);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_top_p_to_the_unit),
        cmocka_unit_test(test_top_p_in_a_tail),
        cmocka_unit_test(test_draws_are_independent),
        cmocka_unit_test(test_draw_ignores_its_place),
        cmocka_unit_test(test_largest_vocabulary),
        cmocka_unit_test(test_greedy_ties),
        cmocka_unit_test(test_bias_and_mask),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_logprobs_ignore_adjustments),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_bad_rows),
    };
    return RUN_ISOLATED(tests, setup, teardown);
}
