/* The scheduler's state, shared by the files of scheduler/ and private to them. sched_create() of scheduler.h makes it
 * and sched_destroy() frees it. One thread at a time. */
#ifndef QUIRE_SCHEDULER_STATE_SCHEDULER_STATE_H
#define QUIRE_SCHEDULER_STATE_SCHEDULER_STATE_H

#include "base/id_map.h"
#include "scheduler/budget.h"
#include "scheduler/state/caps.h"
#include "scheduler/pins.h"
#include "scheduler/scheduler.h"
#include "scheduler/state/admission.h"
#include "scheduler/state/flows.h"
#include "scheduler/state/names.h"
#include "scheduler/state/pace.h"
#include "scheduler/state/plan_slot.h"
#include "scheduler/state/sequence_state.h"
#include "scheduler/state/waits.h"

#include <stdbool.h>
#include <stdint.h>

/* Waiting sequences that one plan sets aside because another one computes their prefix. */
#define SCHED_MAX_ASIDE 256
/* Part of the blocks that stays free for short sequences of other flows: one in so many. */
#define SCHED_LEFT_FREE 32
/* Flows that one plan skips because their first sequence finds no blocks; each costs a lookup. With 4, the fifth tenant
 * with a long prompt stopped all others. */
#define SCHED_MAX_PASSED 64
/* Prompt tokens of a step whose decodes alone exceed its time target. */
#define SCHED_MIN_CHUNK 16
/* Percentage of a step's time target that its prompts have in addition to decodes that exceed the rest. */
#define SCHED_PROMPT_SHARE 25
/* An admitted sequence keeps its seat for as many steps from its first new position on. */
#define SCHED_SEAT_STEPS 8
/* The background gets this fraction of a step's tokens, but at least SCHED_MIN_CHUNK. */
#define SCHED_BACKGROUND_PART 16

/* The parts with a header of their own have an owner of their own; here are the facts that all files share. */
struct sched {
    struct sched_config *config; /* owned; only sched_set_cost() changes it. The current policy is that of flows */
    struct kv_cache *kv;
    struct sched_flows *flows;
    struct sched_waits *waits;
    struct sched_admission *admission;
    struct pins *pins;
    struct budget *budget;
    struct pace *pace; /* of the background */
    struct sched_stats stats;
    struct sched_caps *caps; /* NULL: no tenant has a limit */
    struct sched_tenant_stats *tenants; /* [n_tenants] */
    uint32_t n_tenants; /* >= 1 */

    struct names *names;
    struct sequence *seqs; /* [names->n] */
    uint32_t *adapters; /* [names->n] of their requests: a decode reads no job, which no cache holds */

    struct id_map jobs; /* id → struct sched_job * */

    uint32_t *running; /* in policy order; the next plan removes those that are not RUNNING */
    uint32_t n_listed;
    uint32_t n_proposals; /* sequences with drafts for their next row */
    uint32_t n_touched; /* LEAVING and ENDING sequences: a commit frees their blocks */
    uint32_t n_live_waiting; /* waiting sequences that are not background work */
    struct kv_table **tables; /* all tables; the first n_spare are unused */
    uint32_t n_tables, n_spare;

    uint64_t next_order; /* from 1 */
    uint64_t step, committed; /* last planned, last committed */
    struct plan_slot *slots; /* [overlap_depth + 2] */
    struct plan_scratch scratch;
#ifdef QUIRE_DEBUG
    uint32_t n_unchecked; /* calls since the last check: checked.h */
#endif
};

static inline struct plan_slot *sched_slot(struct sched *s, uint64_t step)
{
    return &s->slots[step % (s->config->overlap_depth + 2)];
}

static inline uint32_t sched_name(const struct sched *s, const struct sequence *q)
{
    return (uint32_t)(q - s->seqs);
}

static inline uint32_t sched_n_live(const struct sched *s, uint32_t tenant)
{
    return (uint32_t)(s->tenants[tenant].n_running + s->tenants[tenant].n_waiting);
}

static inline struct seq_waits *seq_waits(const struct sched *s, const struct sequence *q)
{
    return &s->waits->seqs[q - s->seqs];
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

/* Where the next token of a sequence is written, and its table: half as far ahead, when the sequence itself has arrived. */
static inline void seq_prefetch_parts(const struct sched *s, uint32_t name)
{
    const struct sequence *q = &s->seqs[name];
    __builtin_prefetch(q->tokens + q->n_known, 1);
    __builtin_prefetch(q->table);
}

/* Maximum of positions between the committed and the planned ones when a step is planned. */
static inline uint32_t sched_reach(const struct sched *s)
{
    return s->config->max_num_batched_tokens * (s->config->overlap_depth + 1);
}

#endif
