/* Ratios for people, computed from the counters of drafts. Any thread. */
#ifndef QUIRE_SPECULATION_FIGURES_H
#define QUIRE_SPECULATION_FIGURES_H

#include <stdint.h>

/* Tokens per step of a sequence: one sampled token and the accepted drafts before it. 1 without speculation. */
static inline double draft_tokens_a_step(uint64_t n_generated, uint64_t n_accepted)
{
    return n_generated > n_accepted ? (double)n_generated / (double)(n_generated - n_accepted) : 1;
}

/* 0 to 1. */
static inline double draft_acceptance(uint64_t n_drafted, uint64_t n_accepted)
{
    return n_drafted > 0 ? (double)n_accepted / (double)n_drafted : 0;
}

#endif
