/* The parts of gateway_translate_test. Include after the standard headers that cmocka needs. */
#ifndef QUIRE_TESTS_TRANSLATE_TEST_H
#define QUIRE_TESTS_TRANSLATE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int run_translate_stream_tests(void);

#endif
