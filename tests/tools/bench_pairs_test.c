/* Pairs of measurements: the interval against one found by search, and how often noise counts as a difference. */
#include "tests/tools/bench_test.h"

#include "tools/bench/lib/pairs.h"
#include "tools/bench/lib/random.h"

#include <math.h>

/* In Python: all 2^10 signs enumerated for the p-value of a shift, the interval's ends found by bisection for p = 0.01. */
static void the_interval_is_what_the_test_does_not_refuse(void **state)
{
    (void)state;
    const double a[] = {102.5, 104.8, 105.9, 108.8, 104.8, 108.4, 90.6, 99.3, 108.9, 103.0};
    const double b[] = {91.4, 91.3, 90.8, 96.2, 88.3, 94.2, 81.6, 87.6, 94.5, 97.4};
    struct bench_pairs got;
    assert_int_equal(bench_pairs_compare(a, b, 10, &got, NULL), QUIRE_OK);
    assert_true(fabs(got.ratio - 0.8776630924956641) < 1e-12);
    assert_true(fabs(got.low - 0.8556783046078924) < 1e-9 && fabs(got.high - 0.9143952353808253) < 1e-9);
    assert_true(got.differs);
    assert_int_equal(bench_pairs_compare(b, a, 10, &got, NULL), QUIRE_OK);
    assert_true(fabs(got.ratio - 1 / 0.8776630924956641) < 1e-12 && got.differs);
    assert_int_equal(bench_pairs_compare(a, a, 10, &got, NULL), QUIRE_OK);
    assert_true(got.ratio == 1 && got.low == 1 && got.high == 1 && !got.differs);
}

/* Eight rounds with the same sign are just enough; seven of eight are not. */
static void few_rounds_must_agree(void **state)
{
    (void)state;
    const double a[] = {1, 1, 1, 1, 1, 1, 1, 1};
    double b[] = {1.1, 1.2, 1.3, 1.1, 1.2, 1.4, 1.1, 1.01};
    struct bench_pairs got;
    assert_int_equal(bench_pairs_compare(a, b, 8, &got, NULL), QUIRE_OK);
    assert_true(got.differs && fabs(got.low - 1.01) < 1e-12 && fabs(got.high - 1.4) < 1e-12);
    b[7] = 0.99;
    assert_int_equal(bench_pairs_compare(a, b, 8, &got, NULL), QUIRE_OK);
    assert_false(got.differs);
    assert_int_equal(bench_pairs_compare(a, b, 7, &got, NULL), QUIRE_INVALID);
    b[3] = 0;
    assert_int_equal(bench_pairs_compare(a, b, 8, &got, NULL), QUIRE_INVALID);
}

/* One round in which a neighbour made B a hundred times as slow. */
static void a_disturbed_round_moves_little(void **state)
{
    (void)state;
    double a[16], b[16];
    struct bench_pairs quiet, disturbed;
    uint64_t seed = 1;
    for (int i = 0; i < 16; i++) {
        a[i] = 10 + bench_random_unit(&seed);
        b[i] = 8 + bench_random_unit(&seed);
    }
    assert_int_equal(bench_pairs_compare(a, b, 16, &quiet, NULL), QUIRE_OK);
    b[5] *= 100;
    assert_int_equal(bench_pairs_compare(a, b, 16, &disturbed, NULL), QUIRE_OK);
    assert_true(quiet.differs && disturbed.differs);
    assert_true(fabs(disturbed.ratio / quiet.ratio - 1) < 0.03);
}

/* Noise alone: at most 1 % of comparisons are wrong. That is 50 of 5,000, and more than 75 would be 3.5 deviations
 * off. Intervals contain the true value as often if there is a difference. */
static void noise_is_no_difference(void **state)
{
    (void)state;
    const double truths[] = {1, 1.25};
    const size_t rounds[] = {8, 10, 15};
    uint64_t seed = 2;
    for (int t = 0; t < 2; t++) {
        for (int r = 0; r < 3; r++) {
            int n_wrong = 0, n_found = 0;
            for (int trial = 0; trial < 5000; trial++) {
                double a[15], b[15];
                struct bench_pairs got;
                for (size_t i = 0; i < rounds[r]; i++) {
                    double neighbours = 1 + 3 * bench_random_unit(&seed); /* on both sides of a pair */
                    a[i] = neighbours * (1 + 0.1 * bench_random_unit(&seed));
                    b[i] = truths[t] * neighbours * (1 + 0.1 * bench_random_unit(&seed));
                }
                assert_int_equal(bench_pairs_compare(a, b, rounds[r], &got, NULL), QUIRE_OK);
                n_wrong += truths[t] < got.low || truths[t] > got.high;
                n_found += got.differs;
            }
            assert_true(n_wrong <= 75 && n_wrong >= 5);
            assert_true(t == 0 ? n_found == n_wrong : n_found == 5000);
        }
    }
}

int run_bench_pairs_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_is_what_the_test_does_not_refuse),
        cmocka_unit_test(few_rounds_must_agree),
        cmocka_unit_test(a_disturbed_round_moves_little),
        cmocka_unit_test(noise_is_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
