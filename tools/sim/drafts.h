/* Speculation as a simulation knows it: not what is guessed but how often guesses are right.
 * Pure; any thread on its own values. */
#ifndef QUIRE_TOOLS_SIM_DRAFTS_H
#define QUIRE_TOOLS_SIM_DRAFTS_H

#include "scheduler/draft_counts.h"

struct sim_acceptance {
    uint32_t n;                      /* 0: nothing is known */
    double chance[SCHED_MAX_DRAFT];  /* that draft i is right, those before it being so; past n, the last one's */
};
/* "0.7", or shares of the rows whose first, second … draft was accepted, "0.8,0.6,0.4", as vLLM prints them.
 * QUIRE_INVALID says what is wrong. */
int sim_acceptance_parse(const char *text, struct sim_acceptance *out, struct quire_error *err);

/* How many of `most` drafts are right that begin at a request's token `at`. One draw for each place of each request, so
 * that neither the order of steps nor the number of drafts changes what is right. */
uint32_t sim_acceptance_draw(const struct sim_acceptance *a, uint64_t seed, uint64_t request, uint32_t at,
                             uint32_t most);

/* That accepts as much as was; n 0 where nothing was tried. */
struct sim_acceptance sim_acceptance_of(const struct draft_counts *c);

#endif
