/* A drafter for tests: a watch that knows the answers and makes right or wrong guesses as configured. It gates the
 * sequences it guesses for, and now and then releases one. */
#ifndef QUIRE_TESTS_ENGINE_GUESSER_H
#define QUIRE_TESTS_ENGINE_GUESSER_H

#include "client.h"

#include "engine/watch.h"

enum guesses {
    GUESSES_RIGHT,
    GUESSES_AT_RANDOM, /* any token */
    GUESSES_MIXED, /* right up to some place, then any token */
};

#define GUESSER_MAX_NAMES 4096u

struct guesser {
    struct engine_watch watch;
    struct answer *const *answers; /* [n_answers], in the order of submission, again and again */
    uint32_t n_answers, n_vocab;
    enum guesses guesses;
    uint32_t k; /* drafts of a row, at most 16; 0: from none to 16, another number each time */
    uint64_t random;
    struct {
        const struct answer *answer; /* NULL: the name is free */
        uint32_t choice;
    } owners[GUESSER_MAX_NAMES];
    uint64_t n_verified, n_accepted;
};

/* Freed by free(); it must outlive the engine that its watch is given to. */
struct guesser *guesser_new(struct answer *const *answers, uint32_t n_answers, uint32_t n_vocab, enum guesses guesses,
                            uint32_t k, uint64_t seed);

#endif
