#ifndef QUIRE_TESTS_BENCH_TEST_H
#define QUIRE_TESTS_BENCH_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Each returns the number of failed tests. */
int run_metrics_tests(void);
int run_sse_tests(void);
int run_workload_tests(void);
int run_inputs_tests(void);
int run_cost_file_tests(void);
int run_cost_fit_tests(void);
int run_bench_pairs_tests(void);

#endif
