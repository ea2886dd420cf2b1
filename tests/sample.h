/* Runs a sample of a long matrix of cases. QUIRE_TEST_SAMPLE is the sample's seed: tools/test.sh takes it from the
 * commit, so each commit runs other cases. Unset or empty: every case.
 *
 *     struct sample sample = sample_of(4);                 one of each 4 neighbours
 *     for (...)
 *         if (sample_takes(&sample))
 *             check(case);
 *     sample_report(&sample, "cases");                     "12 of 46 cases, by QUIRE_TEST_SAMPLE=77"
 *
 * Neighbours are usually of one kind, so every sample has every kind that has enough cases. */
#ifndef QUIRE_TESTS_SAMPLE_H
#define QUIRE_TESTS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether the program is slow because a sanitizer instruments it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SAMPLE_IS_SANITIZED true
#else
#define SAMPLE_IS_SANITIZED false
#endif
/* Whether it is the slowest sanitizer, which looks for races: races are in the code that cases share. */
#ifdef __SANITIZE_THREAD__
#define SAMPLE_IS_FOR_RACES true
#else
#define SAMPLE_IS_FOR_RACES false
#endif

struct sample {
    uint64_t seed;
    uint32_t one_in; /* 1: all cases */
    uint32_t n_seen, n_taken;
};

static inline struct sample sample_of(uint32_t one_in)
{
    const char *seed = getenv("QUIRE_TEST_SAMPLE");
    bool is_whole = !seed || !*seed;
    return (struct sample){.seed = is_whole ? 0 : strtoull(seed, NULL, 10), .one_in = is_whole ? 1 : one_in};
}

/* Returns whether the next case is in the sample. */
static inline bool sample_takes(struct sample *s)
{
    uint64_t x = s->seed + 0x9e3779b97f4a7c15u * (1 + s->n_seen / s->one_in); /* splitmix64 of seed and neighbourhood */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    bool takes = (x ^ x >> 31) % s->one_in == s->n_seen++ % s->one_in;
    s->n_taken += takes;
    return takes;
}

static inline void sample_report(const struct sample *s, const char *what)
{
    if (s->one_in > 1)
        printf("%u of %u %s, by QUIRE_TEST_SAMPLE=%llu\n", s->n_taken, s->n_seen, what, (unsigned long long)s->seed);
}

#endif
