/* Speculation in a simulation: not the drafts themselves but how often they are accepted. Pure; any thread on its own
 * values. */
#ifndef QUIRE_TOOLS_SIM_DRAFTS_H
#define QUIRE_TOOLS_SIM_DRAFTS_H

#include "scheduler/draft_counts.h"

struct sim_acceptance {
    uint32_t n;                      /* 0: unknown */
    /* probability that draft i is accepted after all earlier ones; beyond n, the last value */
    double chance[SCHED_MAX_DRAFT];
};
/* Reads "0.7", or shares of the rows whose first, second … draft was accepted, "0.8,0.6,0.4", as vLLM prints them.
 * QUIRE_INVALID names the fault. */
int sim_acceptance_parse(const char *text, struct sim_acceptance *out, struct quire_error *err);

/* How many of `most` drafts from a request's token `at` are accepted. One draw for each position of each request, so
 * the result depends neither on the order of steps nor on the number of drafts. */
uint32_t sim_acceptance_draw(const struct sim_acceptance *a, uint64_t seed, uint64_t request, uint32_t at,
                             uint32_t most);

/* The acceptance of these counts; n 0 if no draft was tried. */
struct sim_acceptance sim_acceptance_of(const struct draft_counts *c);

#endif
