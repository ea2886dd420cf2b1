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
 *
 * scheduler/types/ has the structs that these functions take and return. */
#ifndef QUIRE_SCHEDULER_SCHEDULER_H
#define QUIRE_SCHEDULER_SCHEDULER_H

#include "base/status.h"
#include "memory/kv_cache.h"
#include "scheduler/cost.h"
#include "scheduler/policy.h"
#include "scheduler/types/account.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err);
void sched_destroy(struct sched *s);

/* Sets another policy, or other options, from the next plan on. Running sequences continue. On an error the old policy
 * stays. Allocates: call it between steps, not within one. */
int sched_set_policy(struct sched *s, const struct sched_policy *policy, const struct sched_policy_options *options,
                     struct quire_error *err);
/* Sets another cost model, or the first one, from the next plan on. What was charged before stays charged. QUIRE_INVALID:
 * the model is wrong, or a plan is uncommitted; then nothing changed. */
int sched_set_cost(struct sched *s, const struct sched_cost *cost, struct quire_error *err);
const struct sched_policy *sched_policy_of(const struct sched *s);
/* The policy's own figure, or 0 with *name NULL. */
double sched_policy_figure(const struct sched *s, const char **name);

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
/* Ends one choice in the same way. For the policy its answer is complete: the caller found its end. */
void sched_cancel_seq(struct sched *s, uint32_t seq);

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

/* Plans the next step. n_rows = 0: nothing can run now. Such a plan is not a step, is never committed, has step 0 and
 * is valid until the next one; `preempted`, `refused` and `moves` may have entries. Any other plan belongs to the
 * scheduler and is valid until overlap_depth + 1 further plans. At most overlap_depth + 1 plans may be uncommitted;
 * otherwise QUIRE_INVALID. */
int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out, struct quire_error *err);
/* The shape of a plan, for the cost model. */
struct sched_shape sched_plan_shape(const struct sched_plan *plan);

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

struct sched_account sched_account(const struct sched *s, uint32_t seq);

struct sched_stats sched_stats(const struct sched *s);

struct sched_tenant_stats sched_tenant_stats(const struct sched *s, uint32_t tenant);

/* A hit report: how often cached answers were served so far, which ranks their pins. served: n_served triples of the low
 * and high half of a keep_name, and the count. A name of zero drops all of these pins; unknown names are ignored. */
void sched_served(struct sched *s, const uint32_t *served, uint32_t n_served);
/* Removes the pins of a tenant (UINT32_MAX: of all), including those of cached answers; returns their number. */
uint32_t sched_unpin(struct sched *s, uint32_t tenant);
struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group);
/* Returns whether no sequence lives or waits for sched_next_retired, and no plan is uncommitted. */
bool sched_idle(const struct sched *s);

/* Checks the numbered invariants in scheduler.c, and kv_cache_check(). QUIRE_INTERNAL names the first broken one.
 * Allocates nothing. O(names + tenants + blocks) while no sequence lives, otherwise quadratic in the running sequences.
 * Debug builds call it after every call that changes state. */
int sched_check(const struct sched *s, struct quire_error *err);

#endif
