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
#include "base/status.h"
#include "memory/kv_cache.h"
#include "scheduler/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;

struct sched_config {
    struct kv_config kv;
    uint32_t max_num_seqs;            /* running at once */
    uint32_t max_num_batched_tokens;  /* the token budget of a step */
    uint32_t max_model_len;
    uint32_t max_queued_requests;     /* waiting choices; past it sched_submit is EXHAUSTED */
    uint64_t max_queued_tokens;       /* prompt tokens of waiting requests; 0 = no bound */
    uint32_t max_logit_rows;          /* logit rows in a step, >= max_num_seqs; bounds the chunks
                                         of prompt logprobs */
    uint32_t overlap_depth;           /* 0 or 1 */
    const struct sched_policy *policy;
    struct key256 secret;             /* of the hash chain, for blocks filled by generated tokens */
};

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err);
void sched_destroy(struct sched *s);

/* Copied by sched_submit; nothing is kept of the caller's memory. */
struct sched_request {
    uint64_t id;                  /* the caller's, unique among live requests */
    const uint32_t *prompt;
    uint32_t n_prompt;            /* >= 1 */
    uint32_t max_tokens;          /* generated at most; 0 = only the prompt is computed */
    uint32_t n;                   /* choices, >= 1 */
    bool prompt_logprobs;         /* choice 0 wants logits of every prompt position, each once; it
                                     takes no prefix hits */
    bool no_prefix_hits;          /* computes its prompt whatever is cached */
    int32_t priority;             /* lower first */
    uint64_t arrival_us;
    uint64_t deadline_us;         /* 0 = none; for policies */
    uint32_t tenant;              /* dense small integer, for policies and counters */
    uint32_t adapter;
    struct key256 chain_first;    /* kv_chain_first() of this tenant and adapter */
    const struct key256 *hashes;  /* kv_chain_next() of each full prompt block: n_prompt /
                                     block_tokens of them. Not read without prefix caching. */
};

/* seqs[i] receives the sequence of choice i. QUIRE_EXHAUSTED: queue bound reached (or names not yet
 * collected); QUIRE_INVALID: can never be served (n_prompt + max_tokens above max_model_len, more
 * KV blocks than there are, more choices than may wait) or an id in use. */
int sched_submit(struct sched *s, const struct sched_request *request, uint32_t *seqs,
                 struct quire_error *err);

/* Ends a whole request. Its sequences leave the plan at once and are retired when no launched step
 * can touch them. Unknown id: no-op. */
void sched_cancel(struct sched *s, uint64_t id);
/* Ends one choice, likewise. */
void sched_cancel_seq(struct sched *s, uint32_t seq);

/* Host gate: a held sequence is skipped (its next token's mask or draft is not ready) without
 * stalling others. */
void sched_hold(struct sched *s, uint32_t seq, bool held);

struct sched_row {
    uint32_t seq;
    uint32_t first;       /* position of the first token to compute */
    uint32_t count;       /* positions [first, first + count) */
    uint32_t first_logit; /* logits are wanted for positions [first_logit, first + count) */
    bool samples;         /* the last position's logits give the sequence's next token */
    uint32_t adapter;
};

struct sched_plan {
    uint64_t step;            /* 1, 2, …; 0 for an empty plan */
    uint32_t n_rows, n_tokens, n_logits;
    const struct sched_row *rows;
    uint32_t n_preempted;     /* sequences preempted while planning */
    const uint32_t *preempted;
    uint32_t n_admitted;      /* sequences that left the waiting queue in this plan */
    const uint32_t *admitted;
};

/* Plans the next step. n_rows = 0: nothing can run now; such a plan is not a step, is never
 * committed, has step 0 and is valid until the next one (`preempted` may name sequences all the
 * same). Any other plan belongs to the scheduler and is valid until overlap_depth + 1 further
 * plans. At most overlap_depth + 1 plans may be uncommitted; one more is QUIRE_INVALID. */
int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out,
               struct quire_error *err);

/* What a row that samples gave. Tokens past max_tokens are dropped. */
struct sched_result {
    uint32_t seq;
    uint32_t n_tokens;      /* >= 1; more than one only when no later launched step has a row of
                               the sequence */
    const uint32_t *tokens;
    bool finished;          /* the caller saw a stop: the sequence ends with these tokens */
};

/* Results of the oldest uncommitted plan, one for every row with `samples` whose sequence still
 * lives, in row order; those of sequences that are over may be left out. QUIRE_INVALID: results
 * that do not fit the plan; nothing changed. finished[i], when not NULL, says whether results[i]'s
 * sequence ended (by its stop or by max_tokens); for a result thrown away (sequence cancelled or
 * ended in the meantime) discarded[i] is set. */
int sched_commit(struct sched *s, const struct sched_result *results, uint32_t n_results,
                 bool *finished, bool *discarded, struct quire_error *err);

/* Sequences that are over (finished, cancelled, or computed with max_tokens = 0) and whose blocks
 * have returned: the name may be reused after this call, so the caller drops its own state now.
 * Returns false when there is none. */
bool sched_next_retired(struct sched *s, uint32_t *seq);

/* What the engine needs to run a row. Pointers valid until the next sched_ call that changes state.
 * A token that is still being sampled (depth 1) reads as SCHED_PENDING. */
#define SCHED_PENDING UINT32_MAX
const uint32_t *sched_tokens(const struct sched *s, uint32_t seq, uint32_t *n_tokens);
/* NULL and 0 for a sequence that holds no blocks: waiting, or over. */
const uint32_t *sched_blocks(const struct sched *s, uint32_t seq, uint32_t group,
                             uint32_t *n_blocks);
/* Prompt positions not computed thanks to hits, at first admission. */
uint32_t sched_cached_tokens(const struct sched *s, uint32_t seq);

struct sched_stats {
    uint32_t n_running, n_waiting;      /* sequences */
    uint64_t n_waiting_tokens;
    uint64_t n_preemptions;
    uint64_t n_prefix_queries, n_prefix_hits; /* tokens */
    uint64_t n_steps;
};
struct sched_stats sched_stats(const struct sched *s);
struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group);
/* No sequence that lives or waits to be collected by sched_next_retired, no uncommitted plan. */
bool sched_idle(const struct sched *s);

/* Numbered invariants, stated in scheduler.c, and kv_cache_check(). */
int sched_check(const struct sched *s, struct quire_error *err);

#endif
