/* engine/: a checkpoint becomes a running model. Knows tokens and tensors; no HTTP, no text.
 *
 * engine_open() maps the weights, plans memory, allocates every arena and starts the engine
 * thread. Requests go in by engine_submit() from any thread; what happens to them comes out
 * through one sink, called on the engine thread. Nothing is allocated on the device after engine_open() returns.
 *
 * A request gets the same tokens and logprob bits whatever else is being served
 * (docs/numerics.md), unless the options give that up (invariance). A request's fault ends that request only.
 */
#ifndef QUIRE_ENGINE_ENGINE_H
#define QUIRE_ENGINE_ENGINE_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/identity.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "request/spec.h"
#include "scheduler/scheduler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_watch; /* engine/watch.h: looks on while the engine schedules */

struct engine_options {
    const char *model_dir;
    const char *device;               /* "auto", "ref", "cpu", "cuda", "cuda:N"; to plan only, also the name of a
                                         GPU that k_device_find() knows */
    const char *dtype;                /* "auto", or the stored dtype's name, or "float32" (then KV is f32) */
    const char *kv_cache_dtype;       /* "auto", "float16", "float32" */
    const char *gemm_form;            /* "auto", "lane", "tile", "mma" */
    const char *invariance; /* "strict", or "off": a GPU may compute GEMMs of many tokens by NVIDIA's library, and a
                                         request's bits then depend on what else is served */
    const char *activation_dtype; /* "float32", or "bfloat16" in the tile form */
    uint32_t max_model_len; /* 0 = what the model says */
    uint32_t max_num_seqs; /* 0 = default */
    uint32_t max_num_batched_tokens; /* 0 = default */
    uint32_t block_size; /* 0 = 16 */
    bool prefix_caching;
    const char *prefix_cache_eviction; /* "lru", "reuse" */
    uint64_t swap_space; /* bytes of host memory for cached blocks that the pool gives up; 0 = none */
    uint32_t num_kv_blocks; /* 0 = from kv_cache_memory, or a share of free memory */
    uint64_t kv_cache_memory; /* bytes; 0 = default */
    uint32_t n_threads; /* 0 = default */
    double gpu_memory_utilization; /* share of a GPU's memory that the engine may take, the driver's part
                                         included; 0 = 0.9 */
    bool enforce_eager; /* run every step operation by operation: no recorded graphs */
    const char *cpu_bind; /* "auto", "none", or the CPU of each compute thread: "0-3,8" */
    uint32_t max_queued_requests; /* 0 = 1,024 */
    uint64_t max_queued_tokens; /* 0 = no bound */

    /* Scheduling. What the fields of the same name in struct sched_config mean; 0 as there. */
    const char *scheduling_policy; /* of sched_policy_names() */
    struct sched_policy_options policy_options; /* all zero = the policy's defaults, one tenant; the
                                                   weights are copied */
    struct sched_cost cost; /* n_points = 0: no cost model */
    uint32_t long_prefill_token_threshold, max_partial_prefills;
    double step_target_ms; /* needs a cost model */
    bool adaptive_budget;
    const char *batching; /* "continuous", "dynamic", "static" */
    uint32_t max_batch_size;
    double max_wait_ms; /* of dynamic batches */
    const char *preemption_mode; /* "auto", "swap", "recompute", "never" */
    uint32_t max_pinned_percent;

    const struct engine_watch *const *watches; /* [n_watches], at most ENGINE_MAX_WATCHES; the array is
                                                  copied, what it points to must outlive the engine */
    uint32_t n_watches;

    bool has_seed; /* seeds of requests that bring none: derived from seed and a counter, else random */
    uint64_t seed;
    const struct key256 *chain_secret; /* NULL = fresh random */
};
void engine_options_default(struct engine_options *options);
#define ENGINE_MAX_WATCHES 4u

/* ---- the memory plan: host arithmetic, also without weights or device (`quire plan`) ---- */

struct engine_plan {
    char device[16]; /* the backend */
    const struct k_planner *planner; /* of it: static */
    const struct k_device *gpu; /* NULL, or the GPU that was named to plan for */
    uint64_t weight_bytes; /* mapped, in place; on a GPU its copy there */
    uint64_t param_bytes; /* norms and biases widened to f32, inverse frequencies */
    uint64_t activation_bytes; /* step buffers */
    uint64_t workspace_bytes; /* the backend's */
    uint64_t logits_bytes;
    uint64_t kv_bytes; /* all groups */
    uint64_t kv_block_bytes; /* one block of every group */
    uint64_t swap_bytes; /* the host tier of all groups */
    uint32_t n_kv_groups;
    struct {
        uint32_t window, n_layers, n_blocks, n_host_blocks;
        uint64_t block_bytes;
    } groups[4];
    uint32_t block_tokens, max_model_len, max_num_seqs, max_num_batched_tokens, max_logit_rows;
    uint32_t n_threads;
    uint32_t overlap_depth; /* a windowed sequence holds its reach in blocks once more for each step in flight */
    bool not_invariant; /* k_plan_dims' */
    struct k_format weight_format, kv_format;
    uint64_t total_bytes; /* everything above but the weights */
    /* A GPU's; all 0 for host memory. */
    uint64_t device_memory; /* what it has */
    uint64_t device_budget; /* what the engine may take of it, the weights and the driver's share included */
    uint64_t driver_bytes; /* context, modules, graphs: measured at start, assumed by a plan without a GPU */
};

/* The device at hand when the engine begins to plan. */
struct engine_device {
    uint64_t memory, available; /* of its own memory; 0 where it computes in the host's */
    const struct k_planner *planner;
};
int engine_plan_make_on(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                        const struct engine_device *device, struct engine_plan *out, struct quire_error *err);
/* Of a GPU by its name, or for host memory: needs no device. */
int engine_plan_make(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                     struct engine_plan *out, struct quire_error *err);

/* The form that the options ask for with such weights; K_FORM_AUTO where the backend chooses. */
int engine_plan_form(const struct engine_options *options, enum k_dtype weights, enum k_gemm_form *out,
                     struct quire_error *err);
int engine_plan_invariance(const struct engine_options *options, bool *off, struct quire_error *err);

/* ---- requests ---- */

enum engine_finish {
    ENGINE_FINISH_STOP,
    ENGINE_FINISH_LENGTH,
    ENGINE_FINISH_CANCELLED,
    ENGINE_FINISH_ERROR,
    ENGINE_FINISH_REFUSED, /* the policy gave it up before it ran: every choice, and no token came */
};

struct engine_logprob {
    float logprob;
    uint32_t rank;
    uint32_t n_top;
    const uint32_t *top_ids; /* [n_top] borrowed until the sink returns */
    const float *top_logprobs;
};

enum engine_event_kind {
    ENGINE_EVENT_TOKEN, /* one generated token of one choice */
    ENGINE_EVENT_PROMPT_LOGPROB, /* of prompt token `position` (1..n_prompt - 1), choice 0, in rising order */
    ENGINE_EVENT_DONE, /* one choice is over; `last` when it was the request's last one */
};
struct engine_event {
    enum engine_event_kind kind;
    uint64_t request;
    uint32_t choice;
    uint32_t token; /* TOKEN: the id. PROMPT_LOGPROB: the prompt's id there. DONE: the stop token when has_stop_token */
    uint32_t position;
    bool has_logprob;
    struct engine_logprob logprob;
    enum engine_finish finish; /* DONE */
    bool has_stop_token; /* DONE: it ended by eos (token is an eos id) or a stop_token_id */
    bool last; /* DONE: nothing more comes for this request id */
    uint32_t n_prompt, n_cached, n_generated; /* DONE */
    uint32_t n_cache_created; /* DONE: tokens in the prompt's full blocks that this choice computed,
                                     for others to hit. Choice 0 only, and 0 without prefix caching or
                                     when the prompt was not computed to its end */
    uint32_t retry_after_ms; /* DONE with ENGINE_FINISH_REFUSED: >= 1 */
    const char *message; /* DONE with ENGINE_FINISH_ERROR; with REFUSED where there is more to
                                     say than that a deadline cannot be met, else NULL */
    const char *parameter; /* DONE with ENGINE_FINISH_ERROR: static, the field of the request that is wrong, or NULL */
    enum quire_status status; /* DONE with ENGINE_FINISH_ERROR: QUIRE_INVALID when what the request asked
                                     for cannot be, else QUIRE_INTERNAL */
    const struct sched_account *account; /* DONE: why it took as long as it did, its `blocker` as the
                                            caller named it; borrowed until the sink returns */
};

/* Called on the engine thread with everything a step gave, in order. Must not block and must not
 * call engine_ functions. The eos or stop token itself is also given as a TOKEN event before DONE. */
typedef void (*engine_sink)(void *context, const struct engine_event *events, size_t n_events);

/* sink_context is handed to every call of the sink. */
int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                struct quire_error *err);
/* Cancels everything, joins the thread, frees everything. */
void engine_close(struct engine *e);

/* Any thread; the request arrives now. id: the caller's, unique among live requests. What spec has is the engine's from
 * here on, also when this fails: it is left as request_spec_default() would. QUIRE_EXHAUSTED: full; *retry_after_ms says
 * when to come back. QUIRE_INVALID: names the parameter. Prefix hashes are computed here, off the engine thread. */
int engine_submit(struct engine *e, uint64_t id, struct request_spec *spec, uint32_t *retry_after_ms,
                  struct quire_error *err);
/* Any thread. Its DONE events (CANCELLED) still come. Unknown ids are ignored. */
void engine_cancel(struct engine *e, uint64_t request);
void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice);

/* New requests are refused (QUIRE_EXHAUSTED) from here on; running ones finish, incomplete static
 * batches with them. */
void engine_drain(struct engine *e);

/* Any thread. Nobody submits for the time being: incomplete static batches begin. */
void engine_no_more(struct engine *e);

/* Any thread; returns at once. Another scheduling policy, from the next step boundary on; who runs
 * goes on running, and engine_stats() names the new one once it rules. options: NULL for those the
 * engine was opened with; its tenants and their weights are the engine's whatever it says.
 * QUIRE_INVALID: no such policy, or options that it refuses. */
int engine_set_policy(struct engine *e, const char *name, const struct sched_policy_options *options,
                      struct quire_error *err);
/* Any thread; returns at once. Forgets the pins of a tenant (UINT32_MAX: of all) at the next step
 * boundary. */
void engine_unpin(struct engine *e, uint32_t tenant);

struct engine_info {
    const struct model_desc *desc;
    const struct model_sampling_defaults *sampling;
    const struct engine_plan *plan;
    const char *device_why; /* which backend was taken, and why */
    enum k_gemm_form gemm_form; /* the one taken */
    const char *gemm_library; /* NULL, or what computes GEMMs of many tokens: answers are not invariant */
    char gemms[96]; /* both in words, for people */
    const char *placement; /* how many threads compute, on which CPUs, and where memory lies */
    uint32_t n_graphs; /* recorded steps */
    bool prefix_caching;
    const char *cache_dtype; /* of the KV cache: "float16" */
    double open_seconds;
    struct engine_identity identity; /* what its bits depend on */
};
const struct engine_info *engine_info(const struct engine *e);

/* 1, 8, 16, 32, … 16,384 tokens: the bounds of vLLM's vllm:iteration_tokens_total. */
#define ENGINE_N_STEP_BUCKETS 13u
extern const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS];

/* Counters only grow; the rest is as of the last step boundary. */
struct engine_stats {
    uint32_t n_running, n_waiting;
    uint64_t n_waiting_tokens;
    double kv_usage; /* 0..1 of the fullest group: referenced blocks, pinned ones included */
    uint64_t n_preemptions, n_prefix_queries, n_prefix_hits;
    uint64_t n_host_hits; /* tokens of n_prefix_hits that came back from the host tier */
    uint64_t n_recomputed; /* positions computed again after preemptions */
    uint64_t n_refused; /* requests that the policy gave up */
    uint64_t n_prompt_tokens, n_generation_tokens, n_steps;
    uint64_t n_step_tokens; /* computed by all steps */
    uint64_t step_buckets[ENGINE_N_STEP_BUCKETS]; /* steps with at most engine_step_bounds[i] tokens */
    uint64_t n_evicted_blocks; /* cached blocks of the pool whose content was given up, all groups */
    double swap_usage; /* 0..1 of the fullest group's host tier; 0 without one */
    uint64_t n_swapped_out, n_swapped_in; /* blocks copied to and from the host tier, all groups */
    uint32_t n_pins, n_pinned_blocks; /* the blocks of the first group. A pin that is due counts until the
                                         next step, also when nobody comes */
    uint64_t n_blocks_leaked; /* blocks referenced while no sequence lives and nothing is pinned:
                                     always 0 */
    uint32_t token_budget; /* of the last step */
    const char *policy; /* static */
    const char *policy_figure_name; /* static; NULL: the policy has no figure of its own */
    double policy_figure;
    bool draining, dead;
};
/* Any thread: a snapshot of the last step boundary. */
void engine_stats(const struct engine *e, struct engine_stats *out);

/* Any thread: a tenant's counters at most 100 ms old, and exact once the engine is idle. QUIRE_INVALID:
 * there is no such tenant. */
int engine_tenant_stats(const struct engine *e, uint32_t tenant, struct sched_tenant_stats *out);

#endif
