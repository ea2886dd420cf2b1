/* The toy model of the random driver, and its random numbers. */
#ifndef QUIRE_TESTS_SCHEDULER_FAKE_MODEL_H
#define QUIRE_TESTS_SCHEDULER_FAKE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

struct fake_random {
    uint64_t state;
};
uint64_t fake_next(struct fake_random *random);
/* 0 … n - 1 */
uint32_t fake_below(struct fake_random *random, uint32_t n);
bool fake_chance(struct fake_random *random, uint32_t percent);

/* The hash of a prefix, token by token, and the next token of a choice. */
uint64_t fake_empty_prefix(uint32_t tenant);
uint64_t fake_extend_prefix(uint64_t prefix, uint32_t token);
uint32_t fake_next_token(uint64_t prefix, uint32_t choice);

#endif
