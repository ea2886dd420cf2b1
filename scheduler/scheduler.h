/* scheduler/: requests in, a step plan out.
 *
 * There is no prefill phase and no decode phase. A sequence has a count of computed tokens that follows a count of
 * known tokens. A plan distributes the step's token budget among the sequences. Prefill, chunks, decode, verification
 * and recomputation are all rows of the same plan.
 *
 * Pure: no clock (times are arguments), thread, I/O or device; one thread at a time. The same calls give the same
 * plans, bit for bit.
 *
 * A request has n choices. Each choice is a sequence, identified by a small integer that is reused after the sequence
 * was retired. Choice 0 computes the prompt; the others wait for it, share its full blocks and compute the rest of the
 * prompt themselves.
 *
 * The caller's loop with overlap depth d (0: results are known before the next plan; 1: one step later):
 *     sched_plan(n) → launch it → sched_commit(results of step n - d) → sched_next_retired()…
 * With d = 1, a sequence whose newest token is still being sampled is planned as if the token were
 * known; a row planned past a stop is discarded at commit. Blocks are freed only when no launched
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
    SCHED_CONTINUOUS, /* every step admits every request that fits */
    /* a batch starts when nothing runs and max_batch_size requests wait, or the first of them has waited max_wait_us.
     * No request joins a running batch. */
    SCHED_DYNAMIC,
    SCHED_STATIC, /* the same, but a batch starts only when it is full, or with the rest after sched_no_more() */
};

enum sched_preemption {
    /* lost blocks are restored from the host tier or recomputed, whichever the cost model predicts to be faster;
     * without a model, restored */
    SCHED_PREEMPT_AUTO,
    SCHED_PREEMPT_SWAP, /* from the host tier if it holds them */
    SCHED_PREEMPT_RECOMPUTE, /* preempted sequences are recomputed; the tier serves only prefixes */
    SCHED_PREEMPT_NEVER, /* reservation: admitted only if there are blocks for all that it may ever need */
};

struct sched_config {
    struct kv_config kv;
    uint32_t max_num_seqs; /* maximum of running sequences */
    uint32_t max_num_batched_tokens; /* token budget of a step */
    uint32_t max_model_len;
    uint32_t max_queued_requests; /* waiting choices; beyond it, sched_submit returns EXHAUSTED */
    uint64_t max_queued_tokens; /* prompt tokens of waiting requests; 0: no limit */
    uint32_t max_logit_rows; /* logit rows in a step, >= max_num_seqs; limits the chunks of prompt logprobs */
    /* a prompt is computed in one step: max_model_len is at most max_num_batched_tokens, and limits of chunks or time
     * do not apply */
    bool whole_prompts;
    uint32_t overlap_depth; /* 0 or 1 */
    const struct sched_policy *policy;
    struct sched_policy_options policy_options; /* its n_tenants also limits sched_request.tenant */

    uint32_t long_prefill_token_threshold; /* maximum of prompt tokens of one sequence in a step; 0: no limit */
    uint32_t max_partial_prefills; /* sequences whose prompt is computed at the same time; 0: no limit */
    /* limits a step's prompt tokens so that the predicted time stays below it; 0: no target */
    uint64_t step_target_us;
    bool adaptive_budget; /* scale the prediction by recent step times (budget.h) */
    enum sched_batching batching;
    uint32_t max_batch_size; /* of dynamic and static batches; 0: max_num_seqs */
    uint64_t max_wait_us; /* of dynamic batches */
    enum sched_preemption preemption;
    uint32_t max_pinned_percent; /* percentage of a group's blocks; 0: 50, and no pins for cached answers */
    struct sched_cost cost; /* n_points = 0: no cost model */

    struct key256 secret; /* key of the hash chain, for blocks filled by generated tokens */
};

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err);
void sched_destroy(struct sched *s);

/* Sets another policy, or other options, from the next plan on. Running sequences continue. On an error the old policy
 * stays. Allocates: call it between steps, not within one. */
int sched_set_policy(struct sched *s, const struct sched_policy *policy, const struct sched_policy_options *options,
                     struct quire_error *err);
const struct sched_policy *sched_policy_of(const struct sched *s);
/* The policy's own figure, or 0 with *name NULL. */
double sched_policy_figure(const struct sched *s, const char **name);

/* Copied by sched_submit; the scheduler keeps no pointer to the caller's memory, except an owned prompt. */
struct sched_request {
    uint64_t id; /* set by the caller, unique among live requests */
    const uint32_t *prompt;
    /* NULL: every choice copies the prompt. Otherwise *owned_prompt is the prompt, from malloc(), and the last choice
     * keeps it. sched_submit() sets *owned_prompt to NULL if it returns QUIRE_OK; otherwise the prompt remains the
     * caller's, and may have moved. */
    uint32_t **owned_prompt;
    uint32_t n_prompt; /* >= 1 */
    uint32_t max_tokens; /* maximum of generated tokens; 0: only the prompt is computed */
    uint32_t n; /* choices, >= 1 */
    /* choice 0 needs logits of every prompt position, each once; it takes no prefix hits */
    bool prompt_logprobs;
    bool vector; /* output the model's vector of the prompt */
    bool no_prefix_hits; /* computes its prompt even if it is cached */
    bool background; /* uses only capacity that live requests leave, and is preempted for them */
    /* the sampler's input depends on the tokens so far (penalties, bad words): with an overlap, the sequence skips a
     * step instead of running on a token that is still being sampled */
    bool host_gated;
    int32_t priority; /* lower first */
    uint64_t arrival_us;
    uint64_t deadline_us; /* for the first token; 0: no deadline; for policies */
    /* > 0: after choice 0 ends, the prompt's full blocks stay cached for this long after their last use */
    uint64_t pin_us;
    uint64_t keep_us,
        /* keep_us > 0: the same for an answer that the client caches, including generated blocks, for at most keep_us
         * and in competition with others: pins.h */
        keep_name;
    uint32_t tenant; /* small consecutive integer, for policies and counters */
    uint32_t class_index; /* below SCHED_MAX_CLASSES, for policies */
    uint32_t expected_tokens; /* 0: unknown; for policies */
    uint32_t adapter;
    struct key256 chain_first; /* kv_chain_first() of this tenant and adapter */
    /* kv_chain_next() of each full prompt block: n_prompt / block_tokens of them. Not read without prefix caching. */
    const struct key256 *hashes;
};

/* seqs[i] receives the sequence of choice i. QUIRE_EXHAUSTED: the queue is full, finished names have not been
 * collected, or the policy rejects the request; in the last case *retry_us, if not NULL, is the time after which to
 * retry, otherwise 0. QUIRE_INVALID: the request can never run (n_prompt + max_tokens above max_model_len, more KV
 * blocks than exist, more choices than may wait) or its id is in use. */
int sched_submit(struct sched *s, const struct sched_request *request, uint32_t *seqs, uint64_t *retry_us,
                 struct quire_error *err);

/* No request follows until the next sched_submit: incomplete static batches start. */
void sched_no_more(struct sched *s);

/* Ends a whole request. Its sequences leave the plan at once and are retired when no launched step can touch them. An
 * unknown id is ignored. */
void sched_cancel(struct sched *s, uint64_t id);
/* Ends one choice in the same way. */
void sched_cancel_seq(struct sched *s, uint32_t seq);

#define SCHED_MAX_DRAFT 64u

/* Proposes draft tokens after the known tokens of a running sequence. Its next row that gives a token verifies as many
 * of them as the step has tokens, logit rows and blocks left after all other rows. The drafts are then dropped, also
 * when the sequence is preempted or ends. Returns the number accepted for verification: at most SCHED_MAX_DRAFT, none
 * past max_tokens, and 0 while a token of the sequence is being sampled; with an overlap, only host-gated sequences can
 * therefore have drafts. A second call replaces the first. */
uint32_t sched_propose(struct sched *s, uint32_t seq, const uint32_t *tokens, uint32_t n);

/* Sets whether drafts for the sequence come from the host. A gated sequence is not planned past a token that is being
 * sampled; otherwise there would never be a time to propose. May be called between any two plans.
 * sched_request.host_gated is not affected. Returns whether the value changed: false for a sequence that is over or
 * unknown. */
bool sched_gate(struct sched *s, uint32_t seq, bool gated);

/* The outputs that a row must give. */
struct sched_outputs {
    bool tokens; /* logits of the last n_draft + 1 positions, for sampling the token after each */
    /* logits of the prompt positions before those, from first_logit on, for the probability of the next token */
    bool scores;
    bool vector; /* the vector of the prompt; this row has the prompt's last position */
};

struct sched_row {
    uint32_t seq;
    uint32_t first; /* position of the first token to compute */
    uint32_t count; /* positions [first, first + count) */
    uint32_t n_draft; /* number of drafts at the end of the row, which it verifies */
    uint32_t first_logit; /* logits are needed for positions [first_logit, first + count) */
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
    uint32_t n_refused; /* sequences that the policy rejected: over, without having run */
    const struct sched_refusal {
        uint32_t seq;
        uint64_t retry_us; /* when to retry, from now */
    } *refused;
    /* Copies between the KV arenas and the host tier. The caller makes them in this order before the rows run, also if
     * there are no rows. */
    uint32_t n_moves;
    const struct kv_move *moves;
    uint64_t wake_us; /* plan again at this time even if nothing was submitted; 0: not needed */
    uint32_t token_budget; /* token limit of the step */
};

/* Plans the next step. n_rows = 0: nothing can run now. Such a plan is not a step, is never committed, has step 0 and
 * is valid until the next one; `preempted`, `refused` and `moves` may have entries. Any other plan belongs to the
 * scheduler and is valid until overlap_depth + 1 further plans. At most overlap_depth + 1 plans may be uncommitted;
 * otherwise QUIRE_INVALID. */
int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out, struct quire_error *err);
/* The shape of a plan, for the cost model. */
struct sched_shape sched_plan_shape(const struct sched_plan *plan);

/* The result of a row with outputs.tokens: the accepted drafts, and the token after them. The positions of the other
 * drafts count as not computed. */
struct sched_result {
    uint32_t seq;
    uint32_t n_accepted; /* at most the row's n_draft */
    const uint32_t *tokens; /* [n_accepted + 1]; the accepted tokens equal the drafts */
    bool finished; /* the caller detected a stop: the sequence ends with these tokens */
};

/* Takes the results of the oldest uncommitted plan, in row order: one for every row with outputs.tokens whose sequence
 * lives. Results of sequences that are over may be left out. QUIRE_INVALID: the results do not fit the plan; nothing
 * changed. finished[i], if not NULL, tells whether results[i]'s sequence ended, by its stop or by max_tokens.
 * discarded[i] is set for a discarded result, whose sequence was cancelled or ended in the meantime. */
int sched_commit(struct sched *s, const struct sched_result *results, uint32_t n_results, bool *finished,
                 bool *discarded, struct quire_error *err);

/* Returns sequences that are over (finished, cancelled, or computed with max_tokens = 0) and whose blocks are free. The
 * name may be reused after this call, so the caller drops its own state now. Returns false if there is no further one.
 */
bool sched_next_retired(struct sched *s, uint32_t *seq);

/* Data that the engine needs to run a row. Pointers are valid until the next sched_ call that changes state. A token that is
 * still being sampled (depth 1) reads as SCHED_PENDING, a draft that a row verifies as itself. */
#define SCHED_PENDING UINT32_MAX
const uint32_t *sched_tokens(const struct sched *s, uint32_t seq, uint32_t *n_tokens);
/* NULL and 0 for a sequence without blocks: waiting, or over. */
const uint32_t *sched_blocks(const struct sched *s, uint32_t seq, uint32_t group, uint32_t *n_blocks);
/* Prompt positions not computed because of hits at first admission. */
uint32_t sched_cached_tokens(const struct sched *s, uint32_t seq);

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

/* A hit report: how often cached answers were served so far, which ranks their pins. served: n_served triples of the low
 * and high half of a keep_name, and the count. A name of zero drops all of these pins; unknown names are ignored. */
void sched_served(struct sched *s, const uint32_t *served, uint32_t n_served);
/* Removes the pins of a tenant (UINT32_MAX: of all), including those of cached answers; returns their number. */
uint32_t sched_unpin(struct sched *s, uint32_t tenant);
struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group);
/* Returns whether no sequence lives or waits for sched_next_retired, and no plan is uncommitted. */
bool sched_idle(const struct sched *s);

/* Checks the numbered invariants in scheduler.c, and kv_cache_check(). */
int sched_check(const struct sched *s, struct quire_error *err);

#endif
