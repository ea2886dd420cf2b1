/* Virtual counters of service, one for each flow: what the flow was given, divided by its weight. The
 * lowest counter goes first, so flows that always have somebody waiting get service in proportion to
 * their weights (virtual token counters: Sheng et al., OSDI 2024).
 *
 * A flow that begins to wait is lifted to the least counter of those that wait, or, when none does, to
 * that of the last one that did: nobody saves up service by staying away.
 *
 * Pure. Nothing is allocated after counters_init().
 */
#ifndef QUIRE_SCHEDULER_COUNTERS_H
#define QUIRE_SCHEDULER_COUNTERS_H

#include <stdint.h>

/* What one token of price 1 adds at weight 1. Shares are off by at most weight / (2 × scale), 0.05 % at
 * weight 1000; at weight 1 a counter lasts for 1.7e13 tokens. */
#define COUNTERS_SCALE (1u << 20)

struct counters {
    uint32_t n;
    uint64_t *ranks;   /* [n] the counters */
    uint32_t *steps;   /* [n] what a token adds: COUNTERS_SCALE / weight */
    uint32_t *active;  /* [n] the flows that wait, in no order */
    uint32_t *places;  /* [n] a flow's place among them */
    uint32_t n_active;
    uint32_t last;     /* the flow that was the last to wait, when none does */
};

/* weights[i] is 1..1000, or NULL for all 1; it is not kept. QUIRE_NO_MEMORY leaves nothing behind. */
int counters_init(struct counters *c, uint32_t n, const uint32_t *weights);
void counters_free(struct counters *c);

/* Somebody of the flow begins to wait; nobody of it does any more. By turns for each flow. */
void counters_begin(struct counters *c, uint32_t flow);
void counters_end(struct counters *c, uint32_t flow);

static inline void counters_charge(struct counters *c, uint32_t flow, uint64_t priced_tokens)
{
    c->ranks[flow] += priced_tokens * c->steps[flow];
}

#endif
