/* Virtual counters of service, one for each flow: what the flow was given, divided by its weight. The
 * lowest counter goes first, so flows that always have somebody waiting get service in proportion to
 * their weights (virtual token counters: Sheng et al., OSDI 2024).
 *
 * Who is admitted has the least counter of those that wait; the highest that any had then is the virtual
 * time. A flow that begins to wait is lifted to that, less a head start: nobody saves up service by
 * staying away, and a short prompt goes before those who have waited for long.
 *
 * Pure. Nothing is allocated after counters_init().
 */
#ifndef QUIRE_SCHEDULER_COUNTERS_H
#define QUIRE_SCHEDULER_COUNTERS_H

#include <stdint.h>

/* What one token of price 1 adds at weight 1. Shares are off by at most weight / (2 × scale), 0.05 % at
 * weight 1000. */
#define COUNTERS_SCALE (1u << 20)
/* In tokens of price 1. */
#define COUNTERS_HEAD_START 1024u
/* When the virtual time is past this, all go down by it: 4.4e12 tokens at weight 1. */
#define COUNTERS_FULL (1ull << 62)

struct counters {
    uint32_t n;
    uint64_t *ranks; /* [n] the counters */
    uint32_t *steps; /* [n] what a token adds: COUNTERS_SCALE / weight */
    uint64_t now;    /* the virtual time */
};

/* weights[i] is 1..1000, or NULL for all 1; it is not kept. QUIRE_NO_MEMORY leaves nothing behind. */
int counters_init(struct counters *c, uint32_t n, const uint32_t *weights);
void counters_free(struct counters *c);

/* Somebody of the flow begins to wait, when nobody did. */
void counters_begin(struct counters *c, uint32_t flow);
/* Somebody of the flow is admitted. Before it is charged. */
void counters_admit(struct counters *c, uint32_t flow);

/* What so many tokens of price 1 add to the flow's counter. */
static inline uint64_t counters_cost(const struct counters *c, uint32_t flow, uint64_t priced_tokens)
{
    return priced_tokens * c->steps[flow];
}

static inline void counters_charge(struct counters *c, uint32_t flow, uint64_t priced_tokens)
{
    c->ranks[flow] += counters_cost(c, flow, priced_tokens);
}

#endif
