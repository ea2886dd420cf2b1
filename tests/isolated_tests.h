/* Runs a group of cmocka's tests. With QUIRE_ISOLATE=1 in the environment each test has its own process, so a test
 * that crashes, hangs or breaks a GPU does not stop the others (kernels/cases/isolate.h). Include cmocka.h first. */
#ifndef QUIRE_TESTS_ISOLATED_TESTS_H
#define QUIRE_TESTS_ISOLATED_TESTS_H

#include "tests/isolate_print.h"

#include <stdlib.h>

#define ISOLATED_LIMIT_S 120 /* per test; the longest takes 40 s on a GPU's host */

static inline int run_isolated_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                     CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    const struct isolate_range range = isolate_range(n);
    const struct isolate_job job = {.n = n, .limit_s = ISOLATED_LIMIT_S, .one_each = true};
    if (!range.is_child && getenv("QUIRE_ISOLATE"))
        return isolate_run_printing(job, true);
    if (range.first == range.end)
        return 0;
    isolate_enter(range.first, tests[range.first].name);
    return _cmocka_run_group_tests(group, tests + range.first, range.end - range.first, set_up, tear_down);
}

#define RUN_ISOLATED(tests, set_up, tear_down) \
    run_isolated_tests(#tests, (tests), sizeof(tests) / sizeof(tests)[0], (set_up), (tear_down))

#endif
