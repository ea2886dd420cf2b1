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
 *
 * While a row that verifies drafts is launched, n_planned lies n_drafting past n_known, where the drafts are, and
 * nothing more is planned; its commit brings n_planned back to n_computed, after the last draft that was right.
 */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include "base/id_map.h"
#include "scheduler/budget.h"
#include "scheduler/pins.h"
#include "scheduler/queue.h"
#include "scheduler/scheduler.h"

enum seq_state {
    SEQ_FREE = 0,
    SEQ_WAITING,   /* to be admitted; queued */
    SEQ_FOLLOWING, /* waits for its request's leader to have the prompt planned */
    SEQ_RUNNING,   /* has a block table */
    SEQ_LEAVING,   /* preempted, keeps its table until its last launched step is committed */
    SEQ_ENDING,    /* over, likewise */
    SEQ_RETIRED,   /* over, to be collected by sched_next_retired */
};

/* Why a sequence waits for the host to see its tokens. */
enum seq_gate {
    SEQ_GATE_SAMPLER = 1, /* sched_request.host_gated */
    SEQ_GATE_DRAFTS = 2,  /* sched_gate() */
};

/* A request: its choices are sequences. */
struct sched_job {
    uint64_t id;
    uint32_t n, n_live;        /* choices; those that are not over */
    uint32_t n_waiting_tokens; /* the prompt's length until a choice was first admitted, then 0 */
    bool prompt_logprobs, no_prefix_hits;
    struct pin *pin;           /* NULL, or what takes over the prompt's blocks when choice 0 ends */
    uint64_t keep_us, keep_name; /* of its request */
    uint32_t seqs[];           /* [n] names; one that is over may be another request's by now */
};

/* What every step looks at comes first: a thousand of these are walked twice a step. */
struct sequence {
    enum seq_state state;
    bool leads;           /* computes the prompt for the choices that follow; false once planned */
    uint8_t gates;        /* bits of seq_gate; with one it is not planned past the tokens that are known */
    bool prompt_logits;   /* wants logits of prompt positions [n_prompt_logits, n_prompt) */
    bool was_admitted;
    bool vector;          /* wants its prompt's last hidden state */
    uint8_t n_proposed;   /* drafts after the known tokens, for the next row that gives one */
    uint8_t n_drafting;   /* drafts that a launched row verifies */
    uint32_t n_prompt, max_tokens;
    uint32_t n_positions; /* positions to be computed in all: the last token's own is not */
    uint32_t n_known, n_sampling;
    uint32_t n_computed, n_planned;
    uint32_t n_reserved;  /* positions the table has blocks for */
    uint32_t n_published; /* leading blocks of the table that were offered to the index */
    uint32_t n_reached;   /* positions ever planned: below it a row computes again */
    uint32_t last_first;  /* first position of the last row */
    uint64_t last_step;   /* the last plan with a row of this sequence */
    uint32_t *tokens;     /* [n_prompt + max_tokens]; one allocation with hashes, owned */

    struct sched_candidate key;
    struct sched_job *job; /* NULL once over */
    struct kv_table *table;  /* NULL when it holds none */

    struct key256 *hashes;   /* [n_positions / block_tokens] names of full blocks */
    struct key256 chain_first;
    uint32_t n_hashes;        /* known of them */
    uint32_t n_prompt_logits; /* prompt positions whose logits were in a plan */
    uint32_t queue_index;     /* QUEUE_NONE when not queued */
    uint32_t adapter;

    /* Reservation: blocks taken over at admission that others hold, too. In a windowed group each
     * holder lets go of them and needs one of its own instead. */
    uint32_t n_shared[KV_MAX_GROUPS];

    struct sched_account account;
    uint64_t short_before[SCHED_N_SHORTAGES]; /* the scheduler's sums when it began to wait */
    uint64_t waits_since_us;
    uint64_t n_admissions_before; /* of the scheduler, when it was submitted */
    uint32_t n_new_before;        /* likewise, with its request's choices before it */
};

/* A plan and the arrays it points to. */
struct plan_slot {
    struct sched_plan plan;
    struct sched_row *rows;  /* [max_num_seqs] each */
    uint32_t *preempted, *admitted;
    struct sched_refusal *refused; /* [SCHED_MAX_REFUSED] */
};

/* Sequences that one plan gives up at most: the rest waits for the next plan. A request of more choices
 * is refused at its submission or not at all. */
#define SCHED_MAX_REFUSED 64
/* Waiting sequences that one plan sets aside because another computes their prefix. */
#define SCHED_MAX_ASIDE 64
/* Flows that one plan passes over because their first finds no blocks: each costs a look-up. */
#define SCHED_MAX_PASSED 4
/* Prompt tokens of a step that is past its time target by its decodes alone. */
#define SCHED_MIN_CHUNK 16
/* The background has this part of a step's tokens, but SCHED_MIN_CHUNK. */
#define SCHED_BACKGROUND_PART 16

#define PLAN_SLOTS_MAX 3 /* overlap_depth + 2 */

struct sched {
    struct sched_config config;
    struct kv_cache *kv;

    uint32_t n_tenants;       /* >= 1 */
    uint32_t n_names;
    struct sequence *seqs;    /* [n_names] */
    uint32_t *free_names;     /* stack */
    uint32_t n_free_names;
    uint32_t *retired;        /* ring of n_names */
    uint32_t retired_head, n_retired;

    struct id_map jobs;     /* id → struct sched_job * */

    void *policy_state;       /* owned; NULL for policies without */
    struct queue queue;
    uint32_t *flow_live;      /* [n_flows + 1] live sequences, the background's last */
    uint32_t *flow_order;     /* [n_flows + 1] in the order of the last plan */
    uint32_t *flow_at;        /* [n_flows + 1] scratch: counts, then places, of the running */
    uint64_t *flow_wants;     /* [n_flows + 1] scratch: prompt tokens the running of a flow want */
    uint32_t *flow_given;     /* [n_flows + 1] scratch: prompt tokens a flow has in this plan */

    uint32_t *running;        /* in policy order; the next plan drops those not RUNNING */
    uint32_t *scratch;        /* [max_num_seqs] */
    uint32_t n_listed;
    struct prefill *prefills; /* [max_num_seqs] scratch of a plan */
    uint32_t *computing;      /* [max_num_seqs] scratch: sequences whose prompt is being computed */
    struct kv_table **tables; /* all; the first n_spare are held by no sequence */
    uint32_t n_tables, n_spare;
    uint32_t n_proposals;     /* sequences with drafts for their next row */
    uint32_t n_touched;       /* LEAVING and ENDING sequences: their blocks come back at a commit */

    /* The head of the queue that did not fit, and what there was to fit into. */
    uint64_t blocked_order;   /* 0 = none */
    int64_t blocked_slack[KV_MAX_GROUPS];

    uint64_t next_order;      /* from 1 */
    uint64_t step, committed; /* last planned, last committed */
    struct plan_slot slots[PLAN_SLOTS_MAX];
    struct sched_stats stats;
    struct sched_tenant_stats *tenants; /* [n_tenants] */
    struct pins pins;
    struct budget budget;

    uint64_t now_us;          /* of the last plan */
    enum sched_shortage shortage; /* why the head of the queue waits since then */
    uint64_t short_us[SCHED_N_SHORTAGES]; /* sums */
    uint64_t n_admissions;    /* first ones, in all */
    uint32_t n_new;           /* live sequences that were never admitted */
    uint32_t n_live_waiting;  /* of stats.n_waiting, those that are not in the background */
    uint64_t last_admitted;   /* request, and its tenant */
    uint32_t last_admitted_tenant;
    uint32_t rerank_cursor;   /* names, round and round */

    bool no_more;             /* nothing follows: incomplete static batches begin */
    uint32_t batch_left;      /* sequences that may still join the batch that runs */
};

/* A running sequence whose prompt is to be computed in the plan being made, and with how much. */
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

/* A step walks a thousand sequences that lie anywhere: what it reads of one is fetched while it is busy
 * with those before. */
#define SEQ_AHEAD 8
static inline void seq_prefetch(const struct sched *s, uint32_t name)
{
    const char *q = (const char *)&s->seqs[name];
    __builtin_prefetch(q);
    __builtin_prefetch(q + 64);
    __builtin_prefetch(q + 128);
}

/* Positions that could be planned now. Nothing is left when all max_tokens are known or being
 * sampled, or when it is not known yet how many drafts are right. */
static inline uint32_t seq_remaining(const struct sequence *q)
{
    if (q->n_drafting > 0)
        return 0;
    uint32_t known = q->n_known + (q->gates ? 0 : q->n_sampling);
    return (known < q->n_positions ? known : q->n_positions) - q->n_planned;
}

/* Does a row that ends before position `end`, drafts aside, give the next token? */
static inline bool seq_samples(const struct sequence *q, uint32_t end)
{
    return end == q->n_known + q->n_sampling && q->max_tokens > 0;
}

/* The most positions between the committed ones and the planned ones when a step is planned. */
static inline uint32_t sched_reach(const struct sched *s)
{
    return s->config.max_num_batched_tokens * (s->config.overlap_depth + 1);
}

static inline void seq_drop_proposal(struct sched *s, struct sequence *q)
{
    s->n_proposals -= q->n_proposed > 0;
    q->n_proposed = 0;
}

/* May the sequence take blocks from the prefix cache? */
static inline bool seq_may_hit(const struct sched *s, const struct sequence *q)
{
    return s->config.kv.prefix_caching && !q->job->no_prefix_hits;
}

/* The most prompt positions that a hit may cover: the last known one is computed for its logits, and
 * positions whose logits are wanted are computed. */
static inline uint32_t seq_most_hit(const struct sequence *q)
{
    uint32_t most = q->n_known - 1;
    return q->prompt_logits && most > q->n_prompt_logits ? q->n_prompt_logits : most;
}

/* Asks the policy for flow and rank. Not while the sequence is queued. */
void sched_rank(struct sched *s, struct sequence *q);
/* WAITING again or for the first time: enters the queue. The caller keeps the counts. */
void sched_enqueue(struct sched *s, struct sequence *q);
/* In and out of the queue, with everything that is counted by it. */
void sched_queue_push(struct sched *s, struct sequence *q);
void sched_queue_remove(struct sched *s, struct sequence *q);
/* Between waiting and running, in all counters. Admission, and preemption. */
void sched_starts_running(struct sched *s, struct sequence *q);
void sched_stops_running(struct sched *s, struct sequence *q);
/* What a policy that refuses is told. n_tokens_before is left at 0. */
struct sched_load sched_load_of(const struct sched *s, const struct sequence *q, uint64_t now_us);
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
