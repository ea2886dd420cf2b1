/* Where a sequence's time went, and the scheduler's counters. Data only. Times are in microseconds. */
#ifndef QUIRE_SCHEDULER_TYPES_ACCOUNT_H
#define QUIRE_SCHEDULER_TYPES_ACCOUNT_H

#include "base/stats/members.h"
#include "base/stats/rows.h"
#include "base/stats/tenant_rows.h"

#include <stdint.h>

/* Why a sequence took its time. Times are those passed to sched_submit and sched_plan. The parts of queue_us are the
 * shortages of the head of the queue in that time. */
enum sched_shortage {
    SCHED_SHORT_OF_NOTHING, /* between two plans */
    SCHED_SHORT_OF_BUDGET, /* earlier rows used the step's tokens or logit rows */
    SCHED_SHORT_OF_SEQS, /* max_num_seqs, max_partial_prefills */
    SCHED_SHORT_OF_BLOCKS,
    SCHED_SHORT_OF_BATCH, /* dynamic and static batching: the batch runs or is not full */
    SCHED_SHORT_OF_PREFIX, /* another sequence is computing the prefix that it shares */
    SCHED_N_SHORTAGES
};
struct sched_account {
    uint64_t arrival_us, admitted_us; /* admitted_us 0: it has not run */
    uint64_t queue_us[SCHED_N_SHORTAGES];
    uint64_t preempted_us; /* waiting after preemptions */
    uint64_t blocker; /* the request admitted last before it, which used the missing resource; 0: none */
    uint32_t blocker_tenant;
    /* lower bound of the number of sequences submitted later but admitted before it: first admissions since its
     * arrival, minus the new ones that existed then. Exact if these were all admitted before it */
    uint32_t n_overtaken;
    uint32_t n_chunks; /* rows that computed known tokens, without decode */
    uint32_t n_preemptions, n_cached, n_loaded /* part of n_cached that came from the host tier */, n_recomputed;
};

/* base/stats/rows.h has the members: rows of SCHED. */
struct sched_stats {
    STATS_ROWS(STATS_SCHED_MEMBER)
    double budget_ratio; /* with adaptive_budget: measured to predicted step times, the ratio in effect; else 1 */
    double batch_wait, batch_size; /* with adaptive_batches: factors of the configured limits; else 1 */
};

struct sched_tenant_stats {
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};

#endif
