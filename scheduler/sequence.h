/* Shared by the files of scheduler/: a sequence, its request, the scheduler's state. Private to this folder.
 *
 * The states of a sequence, and the function of each transition:
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
 * While a row that verifies drafts is launched, n_planned is n_drafting past n_known, and nothing more is planned. Its
 * commit sets n_planned back to n_computed, after the last accepted draft.
 */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include "base/id_map.h"
#include "scheduler/budget.h"
#include "scheduler/pins.h"
#include "scheduler/queue.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/account.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"

enum seq_state {
    SEQ_FREE = 0,
    SEQ_WAITING,   /* to be admitted; queued */
    SEQ_FOLLOWING, /* waits until the plan has its leader's prompt */
    SEQ_RUNNING,   /* has a block table */
    SEQ_LEAVING,   /* preempted; keeps its table until its last launched step is committed */
    SEQ_ENDING,    /* over, likewise */
    SEQ_RETIRED,   /* over, to be collected by sched_next_retired */
};

/* Why a sequence waits until the host has its tokens. */
enum seq_gate {
    SEQ_GATE_SAMPLER = 1, /* sched_request.host_gated */
    SEQ_GATE_DRAFTS = 2,  /* sched_gate() */
};

/* A request: its choices are sequences. */
struct sched_job {
    uint64_t id;
    uint32_t n, n_live;        /* choices; those that are not over */
    uint32_t n_waiting_tokens; /* length of the prompt until a choice is first admitted, then 0 */
    bool prompt_logprobs, no_prefix_hits;
    struct pin *pin;           /* takes over the prompt's blocks when choice 0 ends; NULL: no pin */
    uint64_t keep_us, keep_name; /* of its request */
    uint32_t seqs[];           /* [n] names; the name of a choice that is over may belong to another request */
};

/* Fields that every step reads come first: a step walks a thousand sequences twice. */
struct sequence {
    enum seq_state state;
    bool leads;           /* computes the prompt for the choices that follow; false after it is planned */
    uint8_t gates;        /* bits of seq_gate; a gated sequence is not planned past the known tokens */
    bool prompt_logits;   /* needs logits of prompt positions [n_prompt_logits, n_prompt) */
    bool was_admitted;
    bool vector;          /* needs the vector of its prompt */
    uint8_t n_proposed;   /* drafts after the known tokens, for the next row that gives a token */
    uint8_t n_drafting;   /* drafts that a launched row verifies */
    uint32_t n_prompt, max_tokens;
    uint32_t n_positions; /* positions to compute in all, without that of the last token */
    uint32_t n_known, n_sampling;
    uint32_t n_computed, n_planned;
    uint32_t n_reserved;  /* positions for which the table has blocks */
    uint32_t n_published; /* leading blocks of the table that were offered to the index */
    uint32_t n_reached;   /* positions ever planned: below it, a row recomputes */
    uint32_t last_first;  /* first position of the last row */
    uint64_t last_step;   /* the last plan with a row of this sequence */
    uint32_t *tokens;     /* [n_prompt + max_tokens]; one allocation with hashes, owned */

    struct sched_candidate key;
    struct sched_job *job; /* NULL after its end */
    struct kv_table *table;  /* NULL: holds no table */

    struct key256 *hashes;   /* [n_positions / block_tokens] names of full blocks */
    struct key256 chain_first;
    uint32_t n_hashes;        /* known names */
    uint32_t n_prompt_logits; /* prompt positions whose logits were in a plan */
    uint32_t queue_index;     /* QUEUE_NONE: not queued */
    uint32_t adapter;

    /* With reservation: blocks taken over at admission that other sequences hold, too. In a windowed group each holder
     * releases them and then needs one of its own. */
    uint32_t n_shared[KV_MAX_GROUPS];

    struct sched_account account;
    uint64_t short_before[SCHED_N_SHORTAGES]; /* the scheduler's sums when the sequence began to wait */
    uint64_t waits_since_us;
    uint64_t n_admissions_before; /* the scheduler's count when the sequence was submitted */
    uint32_t n_new_before; /* the same, including earlier choices of its request */
};

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

/* Positions that could be planned now. 0 if all max_tokens are known or being sampled, or while the number of accepted
 * drafts is unknown. */
static inline uint32_t seq_remaining(const struct sequence *q)
{
    if (q->n_drafting > 0)
        return 0;
    uint32_t known = q->n_known + (q->gates ? 0 : q->n_sampling);
    return (known < q->n_positions ? known : q->n_positions) - q->n_planned;
}

/* Returns whether a row that ends before position `end`, without drafts, gives the next token. */
static inline bool seq_samples(const struct sequence *q, uint32_t end)
{
    return end == q->n_known + q->n_sampling && q->max_tokens > 0;
}

/* Maximum of positions between the committed and the planned ones when a step is planned. */
static inline uint32_t sched_reach(const struct sched *s)
{
    return s->config.max_num_batched_tokens * (s->config.overlap_depth + 1);
}

static inline void seq_drop_proposal(struct sched *s, struct sequence *q)
{
    s->n_proposals -= q->n_proposed > 0;
    q->n_proposed = 0;
}

/* Returns whether the sequence may take blocks from the prefix cache. */
static inline bool seq_may_hit(const struct sched *s, const struct sequence *q)
{
    return s->config.kv.prefix_caching && !q->job->no_prefix_hits;
}

/* Maximum of prompt positions that a hit may cover. The last known position is computed for its logits, and so are
 * positions whose logits are needed. */
static inline uint32_t seq_most_hit(const struct sequence *q)
{
    uint32_t most = q->n_known - 1;
    return q->prompt_logits && most > q->n_prompt_logits ? q->n_prompt_logits : most;
}

/* Gets flow and rank from the policy. Not while the sequence is queued. */
void sched_rank(struct sched *s, struct sequence *q);
/* The sequence waits, again or for the first time: adds it to the queue. The caller keeps the counts. */
void sched_enqueue(struct sched *s, struct sequence *q);
/* Adds to and removes from the queue, with all related counters. */
void sched_queue_push(struct sched *s, struct sequence *q);
void sched_queue_remove(struct sched *s, struct sequence *q);
/* Moves between waiting and running, with all counters: admission and preemption. */
void sched_starts_running(struct sched *s, struct sequence *q);
void sched_stops_running(struct sched *s, struct sequence *q);
/* The load for a policy that rejects requests. n_tokens_before stays 0. */
struct sched_load sched_load_of(const struct sched *s, const struct sequence *q, uint64_t now_us);
/* The leader's prompt is planned: the other choices may be admitted from the next plan on. */
void sched_release_followers(struct sched *s, struct sequence *leader);
/* Releases the blocks and the table of a sequence. */
void sched_drop_table(struct sched *s, struct sequence *q);
/* A preempted sequence that no launched step touches restarts from its known tokens. */
void sched_requeue(struct sched *s, struct sequence *q);
/* Puts a sequence that is over and untouched on the retired list. */
void sched_retire(struct sched *s, struct sequence *q);
/* Ends a live sequence. The last choice of a request frees the request. */
void sched_end(struct sched *s, struct sequence *q);

#endif
