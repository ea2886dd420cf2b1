/* What the files of scheduler/ share: a sequence, its request, the scheduler's state. Nobody else
 * includes this.
 *
 * The states of a sequence, each edge with the function that takes it:
 *
 *   FREE --sched_submit--> WAITING (choice 0)        FREE --sched_submit--> FOLLOWING (the others)
 *   FOLLOWING --sched_release_followers, or its leader ended--> WAITING
 *   WAITING --sched_plan admits--> RUNNING
 *   RUNNING --sched_plan preempts--> LEAVING (a launched step touches it) or WAITING
 *   LEAVING --sched_commit of that step--> WAITING
 *   any live state --over: sched_end--> ENDING (a launched step touches it) or RETIRED
 *   ENDING --sched_commit of that step--> RETIRED
 *   RETIRED --sched_next_retired--> FREE
 *
 * The counters of a sequence, all in positions from 0:
 *
 *   0 … n_computed … n_planned … n_known + n_sampling ≤ n_prompt + max_tokens
 *   computed, step    launched,  known tokens, then
 *   committed         not yet    those being sampled
 */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include "scheduler/queue.h"
#include "scheduler/scheduler.h"

enum seq_state {
    SEQ_FREE = 0,
    SEQ_WAITING,   /* to be admitted; queued unless held */
    SEQ_FOLLOWING, /* waits for its request's leader to have the prompt planned */
    SEQ_RUNNING,   /* has a block table */
    SEQ_LEAVING,   /* preempted, keeps its table until its last launched step is committed */
    SEQ_ENDING,    /* over, likewise */
    SEQ_RETIRED,   /* over, to be collected by sched_next_retired */
};

struct request {
    uint64_t id;
    struct request *next; /* in its bucket of the id map */
    uint32_t n, n_live;        /* choices; those that are not over */
    uint32_t n_waiting_tokens; /* the prompt's length until a choice was first admitted, then 0 */
    bool prompt_logprobs, no_prefix_hits;
    uint32_t seqs[];           /* [n] names; one that is over may be another request's by now */
};

/* What every step looks at comes first: a thousand of these are walked twice a step. */
struct sequence {
    enum seq_state state;
    bool held;
    bool leads;           /* computes the prompt for the choices that follow; false once planned */
    bool prompt_logits;   /* wants logits of prompt positions [n_prompt_logits, n_prompt) */
    bool was_admitted;
    uint32_t n_prompt, max_tokens;
    uint32_t n_positions; /* positions to be computed in all: the last token's own is not */
    uint32_t n_known, n_sampling;
    uint32_t n_computed, n_planned;
    uint32_t n_reserved;  /* positions the table has blocks for */
    uint32_t n_published; /* leading blocks of the table that were offered to the index */
    uint32_t last_first;  /* first position of the last row */
    uint64_t last_step;   /* the last plan with a row of this sequence */
    uint32_t *tokens;     /* [n_prompt + max_tokens]; one allocation with hashes, owned */

    struct sched_candidate key;
    struct request *request; /* NULL once over */
    struct kv_table *table;  /* NULL when it holds none */

    struct key256 *hashes;   /* [n_positions / block_tokens] names of full blocks */
    struct key256 chain_first;
    uint32_t n_hashes;        /* known of them */
    uint32_t n_prompt_logits; /* prompt positions whose logits were in a plan */
    uint32_t queue_index;     /* QUEUE_NONE when not queued */
    uint32_t adapter;
    uint32_t cached_tokens;
};

/* A plan and the arrays it points to. */
struct plan_slot {
    struct sched_plan plan;
    struct sched_row *rows;  /* [max_num_seqs] each */
    uint32_t *preempted, *admitted;
};

#define PLAN_SLOTS_MAX 3 /* overlap_depth + 2 */

struct sched {
    struct sched_config config;
    struct kv_cache *kv;

    uint32_t n_names;
    struct sequence *seqs;    /* [n_names] */
    uint32_t *free_names;     /* stack */
    uint32_t n_free_names;
    uint32_t *retired;        /* ring of n_names */
    uint32_t retired_head, n_retired;

    struct request **buckets; /* id map, chained */
    uint32_t bucket_mask;

    struct queue queue;
    uint32_t *running;        /* in policy order; the next plan drops those not RUNNING */
    uint32_t n_listed;
    struct kv_table **tables; /* all; the first n_spare are held by no sequence */
    uint32_t n_tables, n_spare;
    uint32_t n_touched;       /* LEAVING and ENDING sequences: their blocks come back at a commit */

    /* The head of the queue that did not fit, and what there was to fit into. */
    uint64_t blocked_order;   /* 0 = none */
    int64_t blocked_slack[KV_MAX_GROUPS];

    uint64_t next_order;      /* from 1 */
    uint64_t step, committed; /* last planned, last committed */
    struct plan_slot slots[PLAN_SLOTS_MAX];
    struct sched_stats stats;
};

static inline struct plan_slot *sched_slot(struct sched *s, uint64_t step)
{
    return &s->slots[step % (s->config.overlap_depth + 2)];
}

static inline uint32_t sched_name(const struct sched *s, const struct sequence *q)
{
    return (uint32_t)(q - s->seqs);
}

/* Positions that could be planned now. Nothing is left when all max_tokens are known or being
 * sampled. */
static inline uint32_t seq_remaining(const struct sequence *q)
{
    uint32_t known = q->n_known + q->n_sampling;
    return (known < q->n_positions ? known : q->n_positions) - q->n_planned;
}

/* Does a row that ends before position `end` give the next token? */
static inline bool seq_samples(const struct sequence *q, uint32_t end)
{
    return end == q->n_known + q->n_sampling && q->max_tokens > 0;
}

/* The most positions between the committed ones and the planned ones when a step is planned. */
static inline uint32_t sched_reach(const struct sched *s)
{
    return s->config.max_num_batched_tokens * (s->config.overlap_depth + 1);
}

/* WAITING again or for the first time: enters the queue unless held. The caller keeps the
 * counts. */
void sched_enqueue(struct sched *s, struct sequence *q);
/* The leader's prompt is planned: the other choices may be admitted from the next plan on. */
void sched_release_followers(struct sched *s, struct sequence *leader);
/* Drops the blocks and the table of a sequence. */
void sched_drop_table(struct sched *s, struct sequence *q);
/* A preempted sequence that no launched step touches starts over from its known tokens. */
void sched_requeue(struct sched *s, struct sequence *q);
/* Puts a sequence that is over and touched by nothing on the retired list. */
void sched_retire(struct sched *s, struct sequence *q);
/* Ends a live sequence; frees its request with its last choice. */
void sched_end(struct sched *s, struct sequence *q);

#endif
