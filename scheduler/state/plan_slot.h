/* The memory of plans: one slot for each plan that may be uncommitted, and one for the plan under construction. */
#ifndef QUIRE_SCHEDULER_STATE_PLAN_SLOT_H
#define QUIRE_SCHEDULER_STATE_PLAN_SLOT_H

#include "scheduler/types/plan.h"

#include <stdint.h>

/* Maximum of sequences that one plan rejects; the rest waits for the next plan. A request with more choices is rejected
 * at its submission or not at all. */
#define SCHED_MAX_REFUSED 64

#define PLAN_SLOTS_MAX 3 /* overlap_depth + 2 */

/* A plan and the arrays it points to. */
struct plan_slot {
    struct sched_plan plan;
    struct sched_row *rows; /* [max_num_seqs] each */
    uint32_t *preempted, *admitted;
    struct sched_refusal *refused; /* [SCHED_MAX_REFUSED] */
};

/* A running sequence whose prompt the current plan computes, and how much of it. */
struct prefill {
    uint32_t name, want;
    bool is_short; /* goes before longer prompts */
};

/* Scratch of the plan under construction: [max_num_seqs] each. */
struct plan_scratch {
    uint32_t *order; /* scratch space while the running list is sorted */
    struct prefill *prefills;
    uint32_t *computing; /* sequences whose prompt is being computed */
};

#endif
