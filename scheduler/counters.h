/* Virtual counters of service, one for each flow: the service of the flow, divided by its weight. The lowest counter is
 * first, so flows that always have waiting sequences get service in proportion to their weights (virtual token
 * counters: Sheng et al., OSDI 2024).
 *
 * An admitted flow has the lowest counter of those that wait; the highest such value so far is the virtual time. A flow
 * that begins to wait is raised to the virtual time minus a head start. Idle flows therefore do not save up service,
 * and a short prompt is before those that have waited long.
 *
 * Pure. Nothing is allocated after counters_init(). One thread at a time.
 */
#ifndef QUIRE_SCHEDULER_COUNTERS_H
#define QUIRE_SCHEDULER_COUNTERS_H

#include <stdint.h>

/* Increment of one token of price 1 at weight 1. Shares are off by at most weight / (2 × scale), 0.05 % at weight 1000.
 */
#define COUNTERS_SCALE (1u << 20)
/* In tokens of price 1. */
#define COUNTERS_HEAD_START 1024u
/* When the virtual time exceeds this, all counters are reduced by it: 4.4e12 tokens at weight 1. */
#define COUNTERS_FULL (1ull << 62)

struct counters {
    uint32_t n;
    uint64_t *ranks; /* [n] the counters */
    uint32_t *steps; /* [n] increment of a token: COUNTERS_SCALE / weight */
    uint64_t now; /* the virtual time */
};

/* weights[i] is 1..1000, or NULL for all 1; not kept. On QUIRE_NO_MEMORY nothing is allocated. */
int counters_init(struct counters *c, uint32_t n, const uint32_t *weights);
void counters_free(struct counters *c);

/* A sequence of the flow begins to wait, and none did before. */
void counters_begin(struct counters *c, uint32_t flow);
/* A sequence of the flow is admitted. Call it before charging the sequence. */
void counters_admit(struct counters *c, uint32_t flow);

/* The increment of this many tokens of price 1. */
static inline uint64_t counters_cost(const struct counters *c, uint32_t flow, uint64_t priced_tokens)
{
    return priced_tokens * c->steps[flow];
}

static inline void counters_charge(struct counters *c, uint32_t flow, uint64_t priced_tokens)
{
    c->ranks[flow] += counters_cost(c, flow, priced_tokens);
}

#endif
