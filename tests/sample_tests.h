/* Runs a sample of a program's tests (tests/sample.h) on a slow device, if the same run of tools/test.sh runs all of
 * them on a CPU. Omitted tests print SKIPPED. Include after cmocka.h. */
#ifndef QUIRE_TESTS_SAMPLE_TESTS_H
#define QUIRE_TESTS_SAMPLE_TESTS_H

#include "tests/sample.h"

static inline void sample_leaves_out(void **state)
{
    (void)state;
    skip();
}

/* Number of steps whose results may be outstanding on the program's device. */
#ifndef TEST_OVERLAP_DEPTH
#define TEST_OVERLAP_DEPTH 0u
#endif

/* Two programs run the same tests, one of them with overlap. Under a sanitizer, only one of them runs each test, by
 * the seed. Other builds run both. */
static inline void sample_overlap(struct CMUnitTest *tests, size_t n)
{
    struct sample sample = sample_of(SAMPLE_IS_SANITIZED ? 2 : 1);
    if (sample.one_in == 1 || sample.seed % 2 == TEST_OVERLAP_DEPTH)
        return;
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = sample_leaves_out};
    printf("the other program runs them, by QUIRE_TEST_SAMPLE=%llu\n", (unsigned long long)sample.seed);
}

static inline void sample_tests(struct CMUnitTest *tests, size_t n, uint32_t one_in)
{
    struct sample sample = sample_of(one_in);
    for (size_t i = 0; i < n; i++)
        if (!sample_takes(&sample))
            tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = sample_leaves_out};
    sample_report(&sample, "tests");
}

#endif
