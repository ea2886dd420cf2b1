/* The scheduler's state, shared by the files of scheduler/ and private to them. sched_create() of scheduler.h makes it
 * and sched_destroy() frees it. One thread at a time. */
#ifndef QUIRE_SCHEDULER_STATE_SCHEDULER_STATE_H
#define QUIRE_SCHEDULER_STATE_SCHEDULER_STATE_H

#include "base/id_map.h"
#include "scheduler/budget.h"
#include "scheduler/pins.h"
#include "scheduler/queue.h"
#include "scheduler/scheduler.h"
#include "scheduler/state/sequence_state.h"

#include <stdbool.h>
#include <stdint.h>

/* A plan and the arrays it points to. */
struct plan_slot {
    struct sched_plan plan;
    struct sched_row *rows; /* [max_num_seqs] each */
    uint32_t *preempted, *admitted;
    struct sched_refusal *refused; /* [SCHED_MAX_REFUSED] */
};

/* Maximum of sequences that one plan rejects; the rest waits for the next plan. A request with more choices is rejected
 * at its submission or not at all. */
#define SCHED_MAX_REFUSED 64
/* Waiting sequences that one plan sets aside because another one computes their prefix. */
#define SCHED_MAX_ASIDE 64
/* Flows that one plan skips because their first sequence finds no blocks; each costs a lookup. */
#define SCHED_MAX_PASSED 4
/* Prompt tokens of a step whose decodes alone exceed its time target. */
#define SCHED_MIN_CHUNK 16
/* The background gets this fraction of a step's tokens, but at least SCHED_MIN_CHUNK. */
#define SCHED_BACKGROUND_PART 16

#define PLAN_SLOTS_MAX 3 /* overlap_depth + 2 */

struct sched {
    struct sched_config config;
    struct kv_cache *kv;

    uint32_t n_tenants; /* >= 1 */
    uint32_t n_names;
    struct sequence *seqs; /* [n_names] */
    uint32_t *free_names; /* stack */
    uint32_t n_free_names;
    uint32_t *retired; /* ring of n_names */
    uint32_t retired_head, n_retired;

    struct id_map jobs; /* id → struct sched_job * */

    void *policy_state; /* owned; NULL for policies without state */
    struct queue queue;
    uint32_t *flow_live; /* [n_flows + 1] live sequences; the last is the background's */
    uint32_t *flow_order; /* [n_flows + 1] in the order of the last plan */
    uint32_t *flow_at; /* [n_flows + 1] scratch: counts, then positions, of the running sequences */
    uint64_t *flow_wants; /* [n_flows + 1] scratch: prompt tokens that the running sequences of a flow need */
    uint32_t *flow_given; /* [n_flows + 1] scratch: prompt tokens of a flow in this plan */

    uint32_t *running; /* in policy order; the next plan removes those that are not RUNNING */
    uint32_t *scratch; /* [max_num_seqs] */
    uint32_t n_listed;
    struct prefill *prefills; /* [max_num_seqs] scratch of a plan */
    uint32_t *computing; /* [max_num_seqs] scratch: sequences whose prompt is being computed */
    struct kv_table **tables; /* all tables; the first n_spare are unused */
    uint32_t n_tables, n_spare;
    uint32_t n_proposals; /* sequences with drafts for their next row */
    uint32_t n_touched; /* LEAVING and ENDING sequences: a commit frees their blocks */

    /* The head of the queue that did not fit, and the space at that time. */
    uint64_t blocked_order; /* 0 = none */
    int64_t blocked_slack[KV_MAX_GROUPS];

    uint64_t next_order; /* from 1 */
    uint64_t step, committed; /* last planned, last committed */
    struct plan_slot slots[PLAN_SLOTS_MAX];
    struct sched_stats stats;
    struct sched_tenant_stats *tenants; /* [n_tenants] */
    struct pins pins;
    struct budget budget;

    uint64_t now_us; /* of the last plan */
    enum sched_shortage shortage; /* why the head of the queue has waited since then */
    uint64_t short_us[SCHED_N_SHORTAGES]; /* sums */
    uint64_t n_admissions; /* first admissions, in all */
    uint32_t n_new; /* live sequences that were never admitted */
    uint32_t n_live_waiting; /* of stats.n_waiting, those not in the background */
    uint64_t last_admitted; /* request, and its tenant */
    uint32_t last_admitted_tenant;
    uint32_t rerank_cursor; /* names, round-robin */

    bool no_more; /* nothing follows: incomplete static batches start */
    uint32_t batch_left; /* sequences that may still join the running batch */
#ifdef QUIRE_DEBUG
    uint32_t n_unchecked; /* calls since the last check: checked.h */
#endif
};

/* A running sequence whose prompt the current plan computes, and how much of it. */
struct prefill {
    uint32_t name, want;
};

static inline struct plan_slot *sched_slot(struct sched *s, uint64_t step)
{
    return &s->slots[step % (s->config.overlap_depth + 2)];
}

static inline uint32_t sched_name(const struct sched *s, const struct sequence *q)
{
    return (uint32_t)(q - s->seqs);
}

/* A step walks a thousand sequences in arbitrary memory order, so it prefetches their data this many ahead. */
#define SEQ_AHEAD 8
static inline void seq_prefetch(const struct sched *s, uint32_t name)
{
    const char *q = (const char *)&s->seqs[name];
    __builtin_prefetch(q);
    __builtin_prefetch(q + 64);
    __builtin_prefetch(q + 128);
}

/* Maximum of positions between the committed and the planned ones when a step is planned. */
static inline uint32_t sched_reach(const struct sched *s)
{
    return s->config.max_num_batched_tokens * (s->config.overlap_depth + 1);
}

#endif
