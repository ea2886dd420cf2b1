/* What a policy brings with it: its state, its queue, and the counts per flow. sched_set_policy() makes all of it anew
 * and replaces the old one as a whole, between two plans. Owned by the scheduler; one thread at a time. */
#ifndef QUIRE_SCHEDULER_STATE_FLOWS_H
#define QUIRE_SCHEDULER_STATE_FLOWS_H

#include "base/status.h"
#include "scheduler/policy.h"
#include "scheduler/queue.h"

#include <stdint.h>

/* The rows of a flow in a plan: those that compute prompts, and the others. A row's own part is known as it is planned, the
 * part of its tokens when the plan is complete. */
struct flow_time {
    uint32_t n_prompt, n_other; /* tokens */
    double prompt_us, other_us; /* own parts that have not been charged */
};

struct sched_flows {
    const struct sched_policy *policy;
    void *state; /* the policy's, owned; NULL for policies without state */
    struct queue queue;
    /* [queue.n_flows + 1] each; the last is the background's */
    uint32_t *live; /* live sequences */
    uint32_t *order; /* in the order of the last plan */
    uint32_t *at; /* scratch: counts, then positions, of the running sequences */
    struct flow_time *times; /* scratch: what the rows of this plan take */
    uint32_t *runs; /* scratch: running sequences that could have a row in this plan */
    bool *ahead; /* scratch: had more than their share; all false for policies without that */
};

/* capped: tenants have limits, so those of one flow can pass each other. The policy reads the keys in seqs[n_names]. On
 * an error *out is NULL, and the old flows are not affected. */
int flows_create(const struct sched_policy *policy, const struct sched_policy_options *options,
                 const struct sched_cost *cost, bool capped, const struct sequence *seqs, uint32_t n_names,
                 struct sched_flows **out, struct quire_error *err);
/* NULL is allowed. */
void flows_destroy(struct sched_flows *flows);

#endif
