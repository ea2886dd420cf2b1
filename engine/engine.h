/* engine/: runs a model from a checkpoint. This module handles tokens and tensors, but no HTTP and no text.
 *
 * engine_open() maps the weights, plans memory, allocates every arena and starts the engine thread. Requests enter
 * through engine_submit() from any thread. Events leave through one sink, which is called on the engine thread.
 * Nothing is allocated on the device after engine_open() returns.
 *
 * A request gets the same tokens and logprob bits regardless of the other requests (numerics.md), unless the option
 * `invariance` gives that up. An error in a request ends that request only.
 *
 * Code that uses an open engine includes this header only. Code that opens an engine also includes options.h. This
 * header exposes no lower module (kernels, scheduler).
 */
#ifndef QUIRE_ENGINE_ENGINE_H
#define QUIRE_ENGINE_ENGINE_H

#include "base/hash.h"
#include "base/stats/members.h"
#include "base/stats/rows.h"
#include "base/stats/tenant_rows.h"
#include "base/status.h"
#include "engine/identity.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_options;          /* engine/options.h */
struct engine_plan;             /* engine/plan.h */
struct model_desc;              /* engine/model/model.h */
struct sampling_defaults;       /* request/spec.h */

#define ENGINE_MAX_CLASSES 8u /* of service */
#define ENGINE_MAX_TENANTS 1024u

/* ---- requests ---- */

enum engine_finish {
    ENGINE_FINISH_STOP,
    ENGINE_FINISH_LENGTH,
    ENGINE_FINISH_CANCELLED,
    ENGINE_FINISH_ERROR,
    ENGINE_FINISH_REFUSED, /* the policy rejected it before it ran: all choices end without a token */
};

struct engine_logprob {
    float logprob;
    uint32_t rank;
    uint32_t n_top;
    const uint32_t *top_ids; /* [n_top] borrowed until the sink returns */
    const float *top_logprobs;
};

/* The reasons for a choice's latency: microseconds in the queue by the resource that was short, and counts. */
struct engine_account {
    uint64_t arrival_us, admitted_us; /* admitted_us 0: it has not run yet */
    uint64_t queue_nothing_us;        /* waited for the next step only */
    uint64_t queue_budget_us;         /* the step's token budget was used by earlier requests */
    uint64_t queue_seqs_us, queue_blocks_us;
    uint64_t queue_batch_us;  /* its batch had not started */
    uint64_t queue_prefix_us; /* another request was computing the prefix that both share */
    uint64_t preempted_us;    /* waiting again after preemptions */
    uint64_t blocker;         /* the request that was admitted last before it, by the caller's id; 0: unknown */
    uint32_t blocker_tenant;
    uint32_t n_overtaken; /* at least this many later choices were admitted before it */
    uint32_t n_chunks;    /* rows that computed known tokens; decode is not counted */
    uint32_t n_preemptions, n_cached, n_loaded /* the part of n_cached that came from the host tier */, n_recomputed;
};

enum engine_event_kind {
    ENGINE_EVENT_TOKEN, /* one generated token of one choice */
    ENGINE_EVENT_PROMPT_LOGPROB, /* logprob of prompt token `position` (1..n_prompt - 1), choice 0, in rising order */
    ENGINE_EVENT_VECTOR, /* the prompt's vector, before its DONE */
    ENGINE_EVENT_DONE, /* one choice has ended; `last` marks the request's last one */
    ENGINE_EVENT_ORDER, /* belongs to no request: order `order` and all orders before it are carried out and visible
                         * in engine_stats() */
};
struct engine_event {
    enum engine_event_kind kind;
    uint64_t request;
    uint64_t order; /* ORDER */
    uint32_t choice;
    uint32_t token; /* TOKEN: the id. PROMPT_LOGPROB: the prompt's id there. DONE: the stop token when has_stop_token */
    uint32_t position;
    bool has_logprob;
    struct engine_logprob logprob;
    const float *vector; /* VECTOR: [n_vector], borrowed until the sink returns */
    uint32_t n_vector;
    enum engine_finish finish; /* DONE */
    bool has_stop_token; /* DONE: it ended by eos (token is an eos id) or a stop_token_id */
    bool last; /* DONE: no further event has this request id */
    uint32_t n_prompt, n_cached, n_generated; /* DONE */
    uint32_t n_drafted, n_accepted; /* DONE: verified drafts, and the accepted ones */
    uint32_t n_predicted, n_predicted_right; /* DONE: the part of those that came from the request's `prediction` */
    uint32_t n_cache_created; /* DONE: tokens in the prompt's full blocks that this choice computed,
                                     for others to hit. Choice 0 only, and 0 without prefix caching or
                                     when the prompt was not computed to its end */
    uint32_t retry_after_ms; /* DONE with ENGINE_FINISH_REFUSED: >= 1 */
    const char *message; /* DONE with ENGINE_FINISH_ERROR; with REFUSED where there is more to
                                     say than that a deadline cannot be met, else NULL */
    const char *parameter; /* DONE with ENGINE_FINISH_ERROR: static, the field of the request that is wrong, or NULL */
    enum quire_status status; /* DONE with ENGINE_FINISH_ERROR: QUIRE_INVALID when what the request asked
                                     for cannot be, else QUIRE_INTERNAL */
    const struct engine_account *account; /* DONE; borrowed until the sink returns */
};

/* Called on the engine thread with all events of a step, in order. It must not block and must not call engine_
 * functions. The eos or stop token itself is also reported as a TOKEN event before DONE. */
typedef void (*engine_sink)(void *context, const struct engine_event *events, size_t n_events);

/* sink_context is passed to every call of the sink. */
int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                struct quire_error *err);
/* Cancels all requests, joins the thread and frees everything. */
void engine_close(struct engine *e);

/* An engine of several ranks (options->tensor_parallel_size) consists of this process, which is rank 0, and further
 * processes of the same program, which engine_open() starts. main() must call this function first. If it returns
 * true, main() calls engine_work(), which returns when rank 0 closes the engine (QUIRE_OK) or a rank fails. */
bool engine_is_rank(void);
/* own: NULL, or the options of a rank that engine_rank() found. They are compared with rank 0's options, which are
 * used, except for the model's path and the number of threads. met: NULL, or called once when all ranks are
 * connected. over: NULL, or called by any thread when the group of ranks started from outside ends early, because
 * this rank's own thread may hang and not return. */
int engine_work(const struct engine_options *own, void (*met)(void), void (*over)(void), struct quire_error *err);

/* Ranks can also be started from outside, on one host or several, all with the same options. The launcher's
 * environment (mpirun and others) or an option then sets each process's rank. *rank receives this process's rank.
 * Rank 0 calls engine_open(); every other rank calls engine_work(). */
int engine_rank(const struct engine_options *options, uint32_t *rank, struct quire_error *err);

/* Any thread; the request arrives now. engine_id: the caller's, unique among live requests. The engine takes over
 * the content of spec, also on failure, and leaves it as request_spec_default() would. Returns QUIRE_EXHAUSTED if
 * the queue is full; *retry_after_ms then holds the delay before a retry. Returns QUIRE_INVALID with the parameter's
 * name in err. Prefix hashes are computed here, off the engine thread. */
int engine_submit(struct engine *e, uint64_t engine_id, struct request_spec *spec, uint32_t *retry_after_ms,
                  struct quire_error *err);
/* Any thread. Its DONE events (CANCELLED) still come. Unknown ids are ignored. */
void engine_cancel(struct engine *e, uint64_t request);
void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice);
/* Any thread. Sets the expected answer of a request that was submitted without one. From the next step boundary on
 * it acts like the request's `prediction`. Only the first call for a request counts, and only the tokens that fit
 * into the model's context. tokens: allocated with malloc(); the engine takes ownership, also on failure. An id that
 * is not live is ignored. Returns QUIRE_INVALID if a value is not a token id. */
int engine_predict(struct engine *e, uint64_t request, uint32_t *tokens, uint32_t n, struct quire_error *err);

/* From here on new requests are rejected (QUIRE_EXHAUSTED). Running requests finish, and incomplete static batches
 * start. */
void engine_drain(struct engine *e);
/* With several ranks: returns QUIRE_UNAVAILABLE and the reason once the process group is over, even if the engine's
 * own thread hangs or computes and cannot notice. Any thread, until engine_close(). */
int engine_check(const struct engine *e, struct quire_error *err);

/* Any thread. Declares that no request follows for now, so that incomplete static batches start. */
void engine_no_more(struct engine *e);

/* Options of a new policy; 0 selects the policy's default. struct sched_policy_options defines them. */
struct engine_policy_options {
    uint64_t ageing_us;
    uint32_t class_weights[ENGINE_MAX_CLASSES];
    uint64_t class_ttft_us[ENGINE_MAX_CLASSES];
    uint32_t prompt_price, output_price, prefill_share;
};
/* Any thread; returns at once. Changes the scheduling policy at the next step boundary. Running requests continue,
 * and engine_stats() names the new policy once it is in effect. options: NULL keeps the options that the engine was
 * opened with. Tenants and their weights stay. Returns QUIRE_INVALID if the policy does not exist or rejects the
 * options. */
int engine_set_policy(struct engine *e, const char *name, const struct engine_policy_options *options, uint64_t *order,
                      struct quire_error *err);
/* Any thread; returns at once. Drops the pins of a tenant (UINT32_MAX: of all tenants) at the next step boundary. A
 * tenant that does not exist has no pins. */
uint64_t engine_unpin(struct engine *e, uint32_t tenant);
/* *order and the return value of engine_unpin() are the order's number, higher than all before it. An
 * ENGINE_EVENT_ORDER reports when the order is carried out, at the latest when the engine shuts down after a fatal
 * error, unless engine_close() comes first. One event may acknowledge several orders. 0 means that nothing is left
 * to do. */

struct engine_info {
    const struct model_desc *desc;
    const struct sampling_defaults *sampling;
    const struct engine_plan *plan;
    /* The values that most callers need: */
    uint32_t vocab_size, n_eos;
    const uint32_t *eos; /* [n_eos] */
    uint32_t max_model_len, max_num_seqs, block_tokens, max_num_batched_tokens, max_queued_requests;
    uint32_t vector_size; /* size of a prompt's vector; 0: the model generates text and returns no vectors */
    bool vector_is_scores; /* the vector holds a classifier's scores of a pair of texts; otherwise an embedding */
    uint32_t n_blocks, n_host_blocks; /* of the first KV group; 0 if it does not exist */
    const char *device_why; /* the selected backend and the reason */
    const char *gemm_library; /* NULL, or the library that computes GEMMs of many tokens, in which case answers are
                               * not invariant */
    char gemms[96]; /* both as text for users */
    const char *placement; /* text: number of threads, their CPUs, and the location of memory */
    uint32_t n_graphs; /* recorded steps */
    uint64_t graph_bytes; /* GPU memory that they use; plan->graph_room_bytes were reserved */
    bool prefix_caching;
    const char *cache_dtype; /* dtype of the KV cache: "float16" */
    const char *draft_method; /* source of drafts for requests that bring no draft: "none", "ngram", "suffix" */
    uint32_t num_speculative_tokens; /* drafts of a row, at most */
    double open_seconds;
    struct engine_identity identity; /* everything that the answers' bits depend on */
};
const struct engine_info *engine_info(const struct engine *e);

/* Reports what engine_open() would do with these options, without arenas, copies or a thread. look is called once
 * with the findings, as far as they got (no architecture, no device_why, no plan's device). The status is the one
 * that engine_open() would return at that point. On a GPU this opens the driver and assumes its share of memory. */
int engine_examine(const struct engine_options *options, void (*look)(void *context, const struct engine_info *info),
                   void *context, struct quire_error *err);

/* 1, 8, 16, 32, … 16,384 tokens: the bounds of vLLM's vllm:iteration_tokens_total. */
#define ENGINE_N_STEP_BUCKETS 13u
extern const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS];

/* Most drafts of one row. */
#define ENGINE_MAX_DRAFT 64u

/* Counters only grow. The other values are those of the last step boundary. */
#define ENGINE_MAX_RANKS 8u

/* base/stats/rows.h has the first members: all rows but those of DAEMON. */
struct engine_stats {
    STATS_ROWS(STATS_ENGINE_MEMBER)
    uint64_t step_buckets[ENGINE_N_STEP_BUCKETS]; /* steps with at most engine_step_bounds[i] tokens */
    uint64_t accepted_at[ENGINE_MAX_DRAFT]; /* rows whose draft at this position was accepted */
    double draft_seconds; /* engine thread's time in the draft model's passes */
    uint32_t n_ranks; /* ranks that share the model; 0: one */
    uint64_t rank_waited_us[ENGINE_MAX_RANKS]
                           [ENGINE_MAX_RANKS]; /* wait times of each rank for each other within steps; about a second
                                                * old */
    const char *policy; /* static */
    const char *policy_figure_name; /* static; NULL: the policy reports no figure of its own */
    double policy_figure;
};
/* Any thread: a snapshot of the last step boundary. */
void engine_stats(const struct engine *e, struct engine_stats *out);

struct engine_tenant_stats {
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};
/* Any thread: a tenant's counters at most 100 ms old, and exact once the engine is idle. Returns QUIRE_INVALID if
 * the tenant does not exist. */
int engine_tenant_stats(const struct engine *e, uint32_t tenant, struct engine_tenant_stats *out);

#endif
