/* scheduler/: requests in, a step plan out.
 *
 * There is no prefill phase and no decode phase. A sequence is a count of computed tokens chasing
 * a count of known tokens; a plan hands out the step's token budget to sequences until it is spent.
 * Prefill, chunks, decode, verify and recompute are all rows of the same plan.
 *
 * Pure: no clock (times are arguments), thread, I/O or device; one thread at a time. Same calls,
 * same plans: replaying the calls gives the plans back bit for bit.
 *
 * A request has n choices; each choice is a sequence, named by a small integer that is reused
 * after the sequence was retired. Choice 0 computes the prompt; the others wait for it, share its
 * full blocks and compute what is left of the prompt themselves.
 *
 * The caller's loop, overlap depth d (0: results are known before the next plan; 1: a step later):
 *     sched_plan(n) → launch it → sched_commit(results of step n - d) → sched_next_retired()…
 * With d = 1, a sequence whose newest token is still being sampled is planned as if the token were
 * known; a row planned past a stop is thrown away at commit. Blocks return only when no launched
 * step can touch them.
 */
#ifndef QUIRE_SCHEDULER_H
#define QUIRE_SCHEDULER_H

#include "base/hash.h"
#include "base/stats/rows.h"
#include "base/status.h"
#include "memory/kv_cache.h"
#include "scheduler/cost.h"
#include "scheduler/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;

enum sched_batching {
    SCHED_CONTINUOUS, /* every step admits what fits */
    SCHED_DYNAMIC,    /* a batch begins when nothing runs: when max_batch_size wait, or the first of
                         them has waited max_wait_us. Nobody joins it. */
    SCHED_STATIC,     /* likewise, but only a full batch begins, or what is left once
                         sched_no_more() was called */
};

enum sched_preemption {
    SCHED_PREEMPT_AUTO,      /* what is lost comes back from the host tier or is computed again,
                                whichever the cost model says is sooner; without one, from the tier */
    SCHED_PREEMPT_SWAP,      /* from the host tier whenever it is there */
    SCHED_PREEMPT_RECOMPUTE, /* preempted sequences are computed again; the tier serves prefixes */
    SCHED_PREEMPT_NEVER,     /* reservation: admitted only with room for all it may ever need */
};

struct sched_config {
    struct kv_config kv;
    uint32_t max_num_seqs;            /* running at once */
    uint32_t max_num_batched_tokens;  /* the token budget of a step */
    uint32_t max_model_len;
    uint32_t max_queued_requests;     /* waiting choices; past it sched_submit is EXHAUSTED */
    uint64_t max_queued_tokens;       /* prompt tokens of waiting requests; 0 = no bound */
    uint32_t max_logit_rows;          /* logit rows in a step, >= max_num_seqs; bounds the chunks
                                         of prompt logprobs */
    bool whole_prompts;               /* a prompt is computed in one step: max_model_len is at most
                                         max_num_batched_tokens, and no chunk's bound or time counts */
    uint32_t overlap_depth;           /* 0 or 1 */
    const struct sched_policy *policy;
    struct sched_policy_options policy_options; /* its n_tenants also bounds sched_request.tenant */

    uint32_t long_prefill_token_threshold; /* most prompt tokens of one sequence in a step; 0 = no
                                              bound */
    uint32_t max_partial_prefills;    /* sequences whose prompt is being computed at once; 0 = no
                                         bound */
    uint64_t step_target_us;          /* a step's prompt tokens are bounded so that it takes no
                                         longer, by the cost model; 0 = no target */
    bool adaptive_budget;             /* scale that by what steps took of late (budget.h) */
    enum sched_batching batching;
    uint32_t max_batch_size;          /* of dynamic and static batches; 0 = max_num_seqs */
    uint64_t max_wait_us;             /* of dynamic batches */
    enum sched_preemption preemption;
    uint32_t max_pinned_percent;      /* of a group's blocks; 0 = 50, and none for kept answers */
    struct sched_cost cost;           /* n_points = 0: there is none */

    struct key256 secret;             /* of the hash chain, for blocks filled by generated tokens */
};

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err);
void sched_destroy(struct sched *s);

/* Another policy, or other options for it, from the next plan on; who runs goes on running. On
 * failure the old one stays. Allocates: between steps, not within one. */
int sched_set_policy(struct sched *s, const struct sched_policy *policy, const struct sched_policy_options *options,
                     struct quire_error *err);
const struct sched_policy *sched_policy_of(const struct sched *s);
/* The policy's own figure; 0 and *name NULL when it has none. */
double sched_policy_figure(const struct sched *s, const char **name);

/* Copied by sched_submit; nothing is kept of the caller's memory. */
struct sched_request {
    uint64_t id;                  /* the caller's, unique among live requests */
    const uint32_t *prompt;
    uint32_t n_prompt;            /* >= 1 */
    uint32_t max_tokens;          /* generated at most; 0 = only the prompt is computed */
    uint32_t n;                   /* choices, >= 1 */
    bool prompt_logprobs;         /* choice 0 wants logits of every prompt position, each once; it
                                     takes no prefix hits */
    bool vector;                  /* wants the hidden state of its prompt's last position */
    bool no_prefix_hits;          /* computes its prompt whatever is cached */
    bool background;              /* runs on what live requests leave, and gives way to them */
    bool host_gated; /* what the sampler is told depends on the tokens so far (penalties, bad words): with
                                     an overlap it skips a step rather than run on a token that is being sampled */
    int32_t priority; /* lower first */
    uint64_t arrival_us;
    uint64_t deadline_us; /* of the first token; 0 = none; for policies */
    uint64_t pin_us; /* > 0: when choice 0 ends, the prompt's full blocks stay cached
                                     for so long after their last use */
    uint64_t keep_us,
        keep_name; /* keep_us > 0: the same of an answer that its asker keeps, generated blocks too, for at most so
                                     long, while it is worth as much as others: pins.h */
    const uint32_t *given; /* [n_given], threes: a keep_name's halves, the low first, and how often it was given */
    uint32_t n_given;
    uint32_t tenant; /* dense small integer, for policies and counters */
    uint32_t class_index; /* below SCHED_MAX_CLASSES, for policies */
    uint32_t expected_tokens; /* 0 = unknown, for policies */
    uint32_t adapter;
    struct key256 chain_first; /* kv_chain_first() of this tenant and adapter */
    const struct key256 *hashes; /* kv_chain_next() of each full prompt block: n_prompt /
                                     block_tokens of them. Not read without prefix caching. */
};

/* seqs[i] receives the sequence of choice i. QUIRE_EXHAUSTED: queue bound reached (or names not yet
 * collected), or the policy refuses it: then *retry_us, when not NULL, says when to come back (else
 * it is 0). QUIRE_INVALID: can never be served (n_prompt + max_tokens above max_model_len, more KV
 * blocks than there are, more choices than may wait) or an id in use. */
int sched_submit(struct sched *s, const struct sched_request *request, uint32_t *seqs, uint64_t *retry_us,
                 struct quire_error *err);

/* No request follows until the next sched_submit: incomplete static batches begin. */
void sched_no_more(struct sched *s);

/* Ends a whole request. Its sequences leave the plan at once and are retired when no launched step
 * can touch them. Unknown id: no-op. */
void sched_cancel(struct sched *s, uint64_t id);
/* Ends one choice, likewise. */
void sched_cancel_seq(struct sched *s, uint32_t seq);

#define SCHED_MAX_DRAFT 64u

/* Guesses at the tokens that follow what is known of a running sequence. Its next row that gives a token verifies as
 * many of them as the step has tokens, logit rows and blocks left for when everybody else was served; then they are
 * forgotten, as they are when the sequence is preempted or ends. Returns how many were taken: at most SCHED_MAX_DRAFT,
 * none past max_tokens, and none while a token of the sequence is being sampled, which with an overlap means that
 * only host-gated sequences can have some. Proposed again, the later ones count. */
uint32_t sched_propose(struct sched *s, uint32_t seq, const uint32_t *tokens, uint32_t n);

/* Whether drafts for the sequence come from the host: then it is not planned past a token that is being sampled, or
 * there would never be a moment to propose. Between two plans, as often as wanted; what sched_request.host_gated says
 * stays. Returns whether that is news: false for a sequence that is over or not there. */
bool sched_gate(struct sched *s, uint32_t seq, bool gated);

/* What a row's results are wanted for. */
struct sched_outputs {
    bool tokens; /* the logits of the last n_draft + 1 positions: each may give the token that follows it */
    bool scores; /* the logits of prompt positions before those, from first_logit on: how likely was the next one? */
    bool vector; /* the hidden state of the prompt's last position, which is in this row */
};

struct sched_row {
    uint32_t seq;
    uint32_t first;       /* position of the first token to compute */
    uint32_t count;       /* positions [first, first + count) */
    uint32_t n_draft;     /* of them, the last: guesses that this row verifies */
    uint32_t first_logit; /* logits are wanted for positions [first_logit, first + count) */
    struct sched_outputs outputs;
    uint32_t adapter;
};

struct sched_plan {
    uint64_t step; /* 1, 2, …; 0 for an empty plan */
    uint32_t n_rows, n_tokens, n_logits;
    const struct sched_row *rows;
    uint32_t n_preempted; /* sequences preempted while planning */
    const uint32_t *preempted;
    uint32_t n_admitted; /* sequences that left the waiting queue in this plan */
    const uint32_t *admitted;
    uint32_t n_refused; /* sequences that the policy gave up: over, nothing of them ran */
    const struct sched_refusal {
        uint32_t seq;
        uint64_t retry_us; /* when it may be worth coming back, from now */
    } *refused;
    /* Copies between the KV arenas and the host tier, to be made in this order before the rows run,
     * also when there are no rows. */
    uint32_t n_moves;
    const struct kv_move *moves;
    uint64_t wake_us; /* plan again at this time though nothing was submitted; 0 = no need */
    uint32_t token_budget; /* what the step was allowed */
};

/* Plans the next step. n_rows = 0: nothing can run now; such a plan is not a step, is never
 * committed, has step 0 and is valid until the next one (`preempted`, `refused` and `moves` may have
 * entries all the same). Any other plan belongs to the scheduler and is valid until overlap_depth + 1 further
 * plans. At most overlap_depth + 1 plans may be uncommitted; one more is QUIRE_INVALID. */
int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out, struct quire_error *err);
/* What the cost model needs to know of a plan. */
struct sched_shape sched_plan_shape(const struct sched_plan *plan);

/* What a row with outputs.tokens gave: the drafts that were right, and the token after them. What was computed of the
 * other drafts is forgotten. */
struct sched_result {
    uint32_t seq;
    uint32_t n_accepted;    /* at most the row's n_draft */
    const uint32_t *tokens; /* [n_accepted + 1]; the accepted ones are the drafts themselves */
    bool finished;          /* the caller saw a stop: the sequence ends with these tokens */
};

/* Results of the oldest uncommitted plan, one for every row with outputs.tokens whose sequence still
 * lives, in row order; those of sequences that are over may be left out. QUIRE_INVALID: results
 * that do not fit the plan; nothing changed. finished[i], when not NULL, says whether results[i]'s
 * sequence ended (by its stop or by max_tokens); for a result thrown away (sequence cancelled or
 * ended in the meantime) discarded[i] is set. */
int sched_commit(struct sched *s, const struct sched_result *results, uint32_t n_results, bool *finished,
                 bool *discarded, struct quire_error *err);

/* Sequences that are over (finished, cancelled, or computed with max_tokens = 0) and whose blocks
 * have returned: the name may be reused after this call, so the caller drops its own state now.
 * Returns false when there is none. */
bool sched_next_retired(struct sched *s, uint32_t *seq);

/* What the engine needs to run a row. Pointers valid until the next sched_ call that changes state.
 * A token that is still being sampled (depth 1) reads as SCHED_PENDING, a draft that a row verifies as itself. */
#define SCHED_PENDING UINT32_MAX
const uint32_t *sched_tokens(const struct sched *s, uint32_t seq, uint32_t *n_tokens);
/* NULL and 0 for a sequence that holds no blocks: waiting, or over. */
const uint32_t *sched_blocks(const struct sched *s, uint32_t seq, uint32_t group, uint32_t *n_blocks);
/* Prompt positions not computed thanks to hits, at first admission. */
uint32_t sched_cached_tokens(const struct sched *s, uint32_t seq);

/* Why a sequence took as long as it did. Times are those given to sched_submit and sched_plan. The
 * parts of queue_us say what its head-of-line was short of meanwhile. */
enum sched_shortage {
    SCHED_SHORT_OF_NOTHING, /* between two plans */
    SCHED_SHORT_OF_BUDGET, /* the step's tokens or logit rows were spent on those before */
    SCHED_SHORT_OF_SEQS, /* max_num_seqs, max_partial_prefills */
    SCHED_SHORT_OF_BLOCKS,
    SCHED_SHORT_OF_BATCH, /* dynamic and static batching: the batch runs, or is not full */
    SCHED_SHORT_OF_PREFIX, /* another sequence is computing the prefix it shares */
    SCHED_N_SHORTAGES
};
struct sched_account {
    uint64_t arrival_us, admitted_us; /* admitted_us 0: it has not run */
    uint64_t queue_us[SCHED_N_SHORTAGES];
    uint64_t preempted_us; /* waiting again after preemptions */
    uint64_t blocker; /* request admitted last before it, 0 = none: who had what it
                                           waited for */
    uint32_t blocker_tenant;
    uint32_t n_overtaken; /* at least so many sequences submitted later were admitted
                                           before it: first admissions since it came, less the new
                                           ones that were there then. Exact where these were all
                                           admitted before it */
    uint32_t n_chunks; /* rows that computed known tokens; decode is not counted */
    uint32_t n_preemptions, n_cached, n_loaded /* of n_cached, from the host tier */, n_recomputed;
};
struct sched_account sched_account(const struct sched *s, uint32_t seq);

/* base/stats/rows.h has the members: rows of SCHED. */
struct sched_stats {
    STATS_ROWS(STATS_SCHED_MEMBER)
    double budget_ratio; /* with adaptive_budget: measured to predicted step times, smoothed; else 1 */
};
struct sched_stats sched_stats(const struct sched *s);

struct sched_tenant_stats {
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};
struct sched_tenant_stats sched_tenant_stats(const struct sched *s, uint32_t tenant);

/* Forgets the pins of a tenant (UINT32_MAX: of all), kept answers' too; returns how many there were. */
uint32_t sched_unpin(struct sched *s, uint32_t tenant);
struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group);
/* No sequence that lives or waits to be collected by sched_next_retired, no uncommitted plan. */
bool sched_idle(const struct sched *s);

/* Numbered invariants, stated in scheduler.c, and kv_cache_check(). */
int sched_check(const struct sched *s, struct quire_error *err);

#endif
