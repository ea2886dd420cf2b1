/* Longest prefix match: the request that costs least to compute is first, so that cached prefixes are used while they
 * exist, and requests that share one follow each other.
 *
 * An uncached prompt token counts as ageing_us / 1,000 of waiting. A request is therefore never overtaken by requests
 * that arrive later than the price of its own prompt: 100 s for 100,000 tokens by default.
 */
#include "scheduler/policies/policies.h"

#include <stdlib.h>

#define DEFAULT_AGEING_US 1000000u

struct lpm {
    uint64_t ageing_us; /* of 1,000 tokens */
};

static int create(const struct sched_policy_options *o, void **state, struct quire_error *err)
{
    struct lpm *lpm = calloc(1, sizeof *lpm);
    if (!lpm)
        return quire_fail(err, QUIRE_NO_MEMORY, "lpm: out of memory");
    lpm->ageing_us = o->ageing_us ? o->ageing_us : DEFAULT_AGEING_US;
    *state = lpm;
    return QUIRE_OK;
}

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    const struct lpm *lpm = state;
    uint64_t left = c->n_prompt > c->n_cached ? c->n_prompt - c->n_cached : 0;
    return sched_later(c->arrival_us, 1, sched_later(0, left, lpm->ageing_us) / 1000);
}

const struct sched_policy sched_policy_lpm = {
    .name = "lpm",
    .about = "longest cached prefix first",
    .ranks_by_cache = true,
    .create = create,
    .destroy = free,
    .rank = rank,
};
