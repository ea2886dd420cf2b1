#ifndef QUIRE_TESTS_SIM_TEST_H
#define QUIRE_TESTS_SIM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Each returns the number of failed tests. */
int run_sim_workload_tests(void);
int run_sim_watch_tests(void);
int run_sim_run_tests(void);

#endif
