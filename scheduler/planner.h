/* A plan under construction, shared by plan.c, order.c, running.c and admit.c. Private to this folder. */
#ifndef QUIRE_SCHEDULER_PLANNER_H
#define QUIRE_SCHEDULER_PLANNER_H

#include "memory/kv_cache.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

/* Limits of a step's time. Rows of flows that are ahead come last; they may lengthen the step only so far beyond the
 * rest. */
struct planner_time {
    double target_us; /* 0 = none */
    double prompt_until_us; /* of prompts: the target, or more if decodes leave too little; 0: not yet known */
    double rest_us; /* the step's time without rows of flows that are ahead */
    bool has_rest; /* the first row of a flow that is ahead is next, and rest_us is set */
    bool has_decodes; /* the step has its decodes, except for those that were put off */
    bool first_token; /* a row gives the first token of a flow that is not ahead */
    uint32_t n_late; /* decodes of flows that are ahead, with a row */
    bool charges; /* the policy is charged for time */
    double least_token_us; /* of each token of a prompt, charged in advance */
};

struct planner {
    struct sched *s;
    struct plan_slot *slot;
    uint64_t now_us;
    struct planner_time *time;    /* the caller's */
    uint32_t budget;              /* tokens left */
    uint32_t logits;              /* remaining logit rows */
    uint32_t background;          /* of the remaining tokens, the limit of the background */
    struct sched_shape shape;     /* of the rows so far */
    uint32_t n_decodes;           /* running sequences that need one token */
    uint32_t n_prefills;          /* in s->scratch.prefills: they have blocks but no rows yet */
    uint32_t n_chunks_left;       /* of those, the rows still to add; a logit row is reserved for each */
    uint32_t n_partial;           /* sequences with a partly computed prompt */
    uint32_t n_computing;         /* in s->scratch.computing */
    uint32_t n_drafts;            /* draft tokens in the rows */
    bool live_first; /* a live request waits or computes its prompt, or live decodes have this step for themselves: the
                        background gets no row */
    bool has_live; /* a live sequence runs */
    bool has_background; /* and a row of the background is in the plan */
    uint32_t n_held; /* running background sequences, at the end of the list, without a row */
    bool short_of_blocks;
    bool prompt_planned; /* a row of this plan has the end of a leader's prompt */
    uint64_t owed[KV_MAX_GROUPS]; /* blocks that the running sequences still need */

    bool head_may_come; /* the head of the queue might be admitted */
    bool any_ahead; /* some flow is ahead of another one with work in this step */
    bool is_shared; /* several flows have work in this step */
    uint32_t seat_of; /* the sequence that lost its seat; QUEUE_NONE: none. Not admitted in this plan */
    bool takes_blocks; /* running sequences lose theirs for the head of the queue, so no flow passes it */
    uint32_t n_passed; /* flows whose first sequence found no blocks and lets others pass */
    uint32_t passed[SCHED_MAX_PASSED]; /* those sequences */
};

/* ---- order.c ---- */

/* Removes sequences that stopped running, restores the policy's order, counts what the running ones need and which are
 * held. */
void planner_order(struct planner *p);

/* ---- running.c ---- */

/* Maximum of positions of a row of q with this many logit rows, under all limits except blocks. */
uint32_t planner_count(const struct planner *p, const struct sequence *q, uint32_t logits);
/* Appends the row; q has its blocks. */
void planner_add_row(struct planner *p, struct sequence *q, uint32_t count);
/* Blocks of a group that q may still need, in addition to those it holds. */
uint32_t planner_owed(const struct planner *p, const struct sequence *q, uint32_t group);
/* Whether the policy holds the sequence's flow to be ahead of others that have work in this step. */
static inline bool planner_is_ahead(const struct planner *p, const struct sequence *q)
{
    return p->any_ahead && p->s->flows->ahead[q->key.flow];
}
/* Call before a row of a flow that is ahead, other than those of planner_serve_running(). */
void planner_rest(struct planner *p);
/* Whether a decode that was put off fits into the step. */
bool planner_fits_late(const struct planner *p, const struct sequence *q);
/* Adds them up for admission. */
void planner_add_owed(struct planner *p, const struct sequence *q);
/* Prompt tokens that the decodes leave. Chunks get blocks for no more than these. */
uint32_t planner_left_for_prompts(const struct planner *p);
/* The running sequences in policy order: rows for decodes, blocks for chunks. */
void planner_serve_running(struct planner *p);
/* Preempts a running sequence, by its index in the list. */
void planner_preempt(struct planner *p, uint32_t index);
/* A held sequence gives its slot and its blocks to a waiting live request. Returns false if no sequence is held. */
bool planner_give_way(struct planner *p);

/* ---- seats.c ---- */

/* If all seats are taken, or the head of the queue found no blocks in the last plan, it may take the seat or the blocks of a
 * running sequence: at most one in a plan. */
void planner_take_seat(struct planner *p);

/* ---- admit.c ---- */

/* Whether q is the head that found no blocks in the last plan. missing[group]: how many it lacked; a hit is not counted. */
bool planner_lacks_blocks(const struct planner *p, const struct sequence *q, int64_t *missing);

/* Blocks of each group that are free and not promised to a running sequence. */
void planner_slack(const struct planner *p, int64_t *slack);
/* Returns whether this plan may admit from the queue. If only time is missing, it sets when to plan again. */
bool planner_may_admit(struct planner *p);
/* Skips waiting sequences whose tenants are at their limits. */
void planner_skip_capped(struct planner *p);
/* Rejects sequences at the head of the queue that the policy gives up. */
void planner_refuse(struct planner *p);
/* Admits planner_head(), or leaves it unchanged. True: look at the head again, because it was admitted or a pin was
 * dropped for it. False: the shortage is noted; planner_pass() decides whether others may be admitted. */
bool planner_admit(struct planner *p);
/* The next sequence to be admitted. QUEUE_NONE if no sequence waits, or no waiting one may pass
 * the skipped flows. */
uint32_t planner_head(const struct planner *p);
/* After planner_admit() returned false: skips the head's flow if the head found no blocks and the policy allows it.
 * Returns false if no other sequence may be admitted in this plan. */
bool planner_pass(struct planner *p, const struct sequence *q);
/* Returns sequences that were set aside, because another one computes their prefix, to the queue. */
void planner_put_back(struct planner *p, const uint32_t *aside, uint32_t n_aside);
/* Returns whether another sequence is computing this sequence's next block, and waiting for it costs less than computing
 * it, too. That sequence then has at least this one's rank until its prompt is computed. */
bool planner_waits_for_prefix(const struct planner *p, struct sequence *q);
/* Looks up some waiting sequences in the cache again, for policies that rank by it. */
void planner_rerank(struct sched *s);

#endif
