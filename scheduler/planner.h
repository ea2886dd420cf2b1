/* A plan in the making: what plan.c, order.c, running.c and admit.c share. Nobody else includes this. */
#ifndef QUIRE_SCHEDULER_PLANNER_H
#define QUIRE_SCHEDULER_PLANNER_H

#include "scheduler/sequence.h"

struct planner {
    struct sched *s;
    struct plan_slot *slot;
    uint64_t now_us;
    uint32_t budget;              /* tokens left */
    uint32_t logits;              /* logit rows left */
    uint32_t background;          /* of the tokens left, those that the background may have */
    double target_us;             /* 0 = none */
    struct sched_shape shape;     /* of the rows so far */
    uint32_t n_decodes;           /* running sequences that want one token */
    uint32_t n_prefills;          /* in s->prefills: blocks are theirs, rows not yet given */
    uint32_t n_chunks_left;       /* of those, rows still to be given: a logit row each is kept */
    uint32_t n_partial;           /* sequences whose prompt is under way */
    uint32_t n_computing;         /* in s->computing */
    uint32_t n_drafts;            /* tokens of the rows that are guesses */
    bool live_first;              /* a live request waits or computes its prompt: the background has no row */
    uint32_t n_held;              /* running sequences of the background, at the end of the list, that have none */
    bool short_of_blocks;
    bool prompt_planned;          /* of a leader, by a row of this plan */
    uint64_t owed[KV_MAX_GROUPS]; /* blocks the running still need */

    /* Shares of a step's prompt tokens, for policies that bound them. */
    uint32_t share;               /* percent; 0 = no bound */
    uint32_t prompt_budget;       /* what is shared */
    uint64_t wanted;              /* prompt tokens all flows want */
    bool head_may_come;           /* the queue's head might be admitted: who waits wants some too */
    uint32_t n_passed;            /* flows whose first found no blocks and lets others go before it */
    uint64_t most_rank;           /* of those others, when n_passed > 0 */
};

/* ---- order.c ---- */

/* Drops what no longer runs, restores the policy's order, counts what the running want and says who is held. */
void planner_order(struct planner *p);

/* ---- running.c ---- */

/* How many positions a row of q can have with so many logit rows, of all bounds but blocks. */
uint32_t planner_count(const struct planner *p, const struct sequence *q, uint32_t logits);
/* Appends the row; q's blocks are there. */
void planner_add_row(struct planner *p, struct sequence *q, uint32_t count);
/* Blocks of a group that q may still need, beside those it holds, for what it is promised. */
uint32_t planner_owed(const struct planner *p, const struct sequence *q, uint32_t group);
/* Counts that, for admission. */
void planner_add_owed(struct planner *p, const struct sequence *q);
/* Prompt tokens that the decodes leave. Chunks are given blocks for no more. */
uint32_t planner_left_for_prompts(const struct planner *p);
/* The running, in policy order: rows of decodes, blocks for chunks. */
void planner_serve_running(struct planner *p);
/* One that is held gives its place and its blocks to a live request that waits. False: nobody is held. */
bool planner_give_way(struct planner *p);

/* ---- admit.c ---- */

/* Blocks of each group that are free and promised to nobody that runs. */
void planner_slack(const struct planner *p, int64_t *slack);
/* May the queue be looked at in this plan at all? Says when to plan again where only time is missing. */
bool planner_may_admit(struct planner *p);
/* Refuses at the head of the queue what the policy gives up. */
void planner_refuse(struct planner *p);
/* Admits planner_head(), or leaves it as it was. True: look at the head again, it was admitted or a pin
 * gave way to it. False: it says what it was short of; planner_pass() says whether others may come. */
bool planner_admit(struct planner *p);
/* The next to be admitted; QUEUE_NONE when nobody is, or may go before those passed over. */
uint32_t planner_head(const struct planner *p);
/* After planner_admit() gave false: where the head found no blocks and the policy has it so, its flow is
 * passed over. False: nobody else may be admitted in this plan. */
bool planner_pass(struct planner *p, const struct sequence *q);
/* Who was set aside, since another one computes its prefix, returns to the queue. */
void planner_put_back(struct planner *p, const uint32_t *aside, uint32_t n_aside);
/* Is the sequence's next block being computed by another one? */
bool planner_waits_for_prefix(const struct planner *p, struct sequence *q);
/* Looks some of the waiting up in the cache again, for policies that rank by it. */
void planner_rerank(struct sched *s);

#endif
