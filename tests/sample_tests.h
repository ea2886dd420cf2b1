/* A program's tests by a sample (tests/sample.h): for a slow device that repeats what runs whole on a CPU in the same run of
 * tools/test.sh. What is left out says SKIPPED. After cmocka.h. */
#ifndef QUIRE_TESTS_SAMPLE_TESTS_H
#define QUIRE_TESTS_SAMPLE_TESTS_H

#include "tests/sample.h"

static inline void sample_leaves_out(void **state)
{
    (void)state;
    skip();
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
