/* Allocations that fail, one after another, in a program that quire_fault_test() of tests/CMakeLists.txt links.
 *
 *     for (long n = 0;; n++) {
 *         fault_at(n);
 *         status = the_call();
 *         if (!fault_end())
 *             break;                  the call makes n allocations, and each failed once
 *         … the call reported it, and nothing changed …
 *     }
 *
 * Covers malloc, calloc, realloc, strdup and asprintf of our own objects, and of a library to which the test passes
 * these functions: json_set_alloc_funcs(malloc, free). Of all threads together; fault_at() and fault_end() are for one thread. */
#ifndef QUIRE_TESTS_FAULT_H
#define QUIRE_TESTS_FAULT_H

#include <stdbool.h>

/* The n-th allocation from now on fails, from 0. */
void fault_at(long n);
/* No further allocation fails. Returns whether one has failed since fault_at(). */
bool fault_end(void);
/* Allocations of the program so far. */
long fault_n_allocations(void);

#endif
