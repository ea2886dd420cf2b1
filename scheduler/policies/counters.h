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
#ifndef QUIRE_SCHEDULER_POLICIES_COUNTERS_H
#define QUIRE_SCHEDULER_POLICIES_COUNTERS_H

#include <stdint.h>

/* Increment of one unit of service at weight 1. A unit is the user's: a token, or a part of a microsecond. Shares are off by at most weight / (2 × scale), 0.05 % at weight 1000.
 */
#define COUNTERS_SCALE (1u << 20)
/* When the virtual time exceeds this, all counters are reduced by it: 4.4e12 units at weight 1. */
#define COUNTERS_FULL (1ull << 62)

struct counters {
    uint32_t n;
    uint64_t *ranks; /* [n] the counters */
    uint32_t *steps; /* [n] increment of a unit: COUNTERS_SCALE / weight */
    uint64_t head_start; /* in units of service */
    uint32_t *sets; /* [n] the set of each flow; sets are independent of each other */
    uint64_t *now; /* [n] the virtual time of a set */
};

/* weights[i] is 1..1000, or NULL for all 1; not kept. sets[i] is below n; NULL: all in
 * set 0. On QUIRE_NO_MEMORY nothing is allocated. */
int counters_init(struct counters *c, uint32_t n, const uint32_t *weights, const uint32_t *sets, uint64_t head_start);
void counters_free(struct counters *c);

/* A sequence of the flow begins to wait, and none did before. */
void counters_begin(struct counters *c, uint32_t flow);
/* A sequence of the flow is admitted. Call it before charging the sequence. */
void counters_admit(struct counters *c, uint32_t flow);

/* Another unit of service: each lead over the lowest counter of a set becomes this multiple of itself. */
void counters_convert(struct counters *c, double factor);

/* The increment of this many units. */
static inline uint64_t counters_cost(const struct counters *c, uint32_t flow, uint64_t units)
{
    return units * c->steps[flow];
}

/* Far from overflow: COUNTERS_FULL starts the counters over. Without any admission between, they stop at the end. */
static inline void counters_charge(struct counters *c, uint32_t flow, uint64_t units)
{
    uint64_t rank = c->ranks[flow] + counters_cost(c, flow, units);
    c->ranks[flow] = rank < c->ranks[flow] ? UINT64_MAX : rank;
}

/* How much more than its share a flow had compared with another one, in units of its own service; 0: no more. */
static inline double counters_lead(const struct counters *c, uint32_t flow, uint32_t of)
{
    if (c->ranks[flow] <= c->ranks[of])
        return 0;
    return (double)(c->ranks[flow] - c->ranks[of]) / c->steps[flow];
}

#endif
