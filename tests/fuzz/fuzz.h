/* The function that every fuzz target defines: it handles one input without a crash, a leak or undefined behaviour.
 * Always returns 0. Called by libFuzzer, or by replay_main.c for each file of a corpus. */
#ifndef QUIRE_TESTS_FUZZ_H
#define QUIRE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
