/* engine/: a checkpoint becomes a running model. Knows tokens and tensors; no HTTP, no text.
 *
 * engine_open() maps the weights, plans memory, allocates every arena and starts the engine
 * thread. Requests go in by engine_submit() from any thread; what happens to them comes out
 * through one sink, called on the engine thread. Nothing is allocated on the device after engine_open() returns.
 *
 * A request gets the same tokens and logprob bits whatever else is being served
 * (docs/numerics.md). A request's fault ends that request only.
 */
#ifndef QUIRE_ENGINE_ENGINE_H
#define QUIRE_ENGINE_ENGINE_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/model.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

struct engine_options {
    const char *model_dir;
    const char *device;               /* "auto", "ref", "cpu", "cuda" */
    const char *dtype;                /* "auto", or the stored dtype's name, or "float32" (then KV is f32) */
    const char *kv_cache_dtype;       /* "auto", "float16", "float32" */
    const char *gemm_form;            /* "auto", "lane", "tile" */
    const char *activation_dtype;     /* "float32", or "bfloat16" in the tile form */
    const char *scheduling_policy;    /* "fcfs", "priority" */
    uint32_t max_model_len;           /* 0 = what the model says */
    uint32_t max_num_seqs;            /* 0 = default */
    uint32_t max_num_batched_tokens;  /* 0 = default */
    uint32_t block_size;              /* 0 = 16 */
    bool prefix_caching;
    uint32_t num_kv_blocks;           /* 0 = from kv_cache_memory, or a share of free memory */
    uint64_t kv_cache_memory;         /* bytes; 0 = default */
    uint32_t n_threads;               /* 0 = default */
    const char *cpu_bind;             /* "auto", "none", or the CPU of each compute thread: "0-3,8" */
    uint32_t max_queued_requests;     /* 0 = 1,024 */
    uint64_t max_queued_tokens;       /* 0 = no bound */
    bool has_seed;                    /* seeds of requests that bring none: derived from seed and a counter, else random */
    uint64_t seed;
    const struct key256 *chain_secret; /* NULL = fresh random */
};
void engine_options_default(struct engine_options *options);

/* ---- the memory plan: host arithmetic, also without weights or device (`quire plan`) ---- */

struct engine_plan {
    char device[16];
    uint64_t weight_bytes;        /* mapped, in place */
    uint64_t param_bytes;         /* norms and biases widened to f32, inverse frequencies */
    uint64_t activation_bytes;    /* step buffers */
    uint64_t workspace_bytes;     /* the backend's */
    uint64_t logits_bytes;
    uint64_t kv_bytes;            /* all groups */
    uint64_t kv_block_bytes;      /* one block of every group */
    uint32_t n_kv_groups;
    struct {
        uint32_t window, n_layers, n_blocks;
        uint64_t block_bytes;
    } groups[4];
    uint32_t block_tokens, max_model_len, max_num_seqs, max_num_batched_tokens, max_logit_rows;
    uint32_t n_threads;
    enum k_dtype weight_dtype, kv_dtype;
    uint64_t total_bytes;         /* everything above but the weights */
};
int engine_plan_make(const struct engine_options *options, const struct model_desc *desc,
                     uint64_t weight_bytes, struct engine_plan *out, struct quire_error *err);

/* The form that the options ask for with such weights; K_FORM_AUTO where the backend chooses. */
int engine_plan_form(const struct engine_options *options, enum k_dtype weights,
                     enum k_gemm_form *out, struct quire_error *err);

/* ---- requests ---- */

struct engine_sampling {
    float temperature, top_p, min_p;
    uint32_t top_k;
    float repetition_penalty, presence_penalty, frequency_penalty;
    bool has_seed;
    uint64_t seed;
    int32_t n_logprobs;               /* -1..20 */
    int32_t n_prompt_logprobs;        /* -1..20 */
    bool ignore_eos;
    uint32_t min_tokens;
    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const struct k_logit_bias *biases;
    uint32_t n_biases;
};
void engine_sampling_default(struct engine_sampling *sampling);

struct engine_request {           /* copied by engine_submit */
    uint64_t id;                  /* the caller's; unique among live requests */
    const uint32_t *prompt;
    uint32_t n_prompt;
    uint32_t max_tokens;
    uint32_t n;                   /* choices, 1..128 */
    int32_t priority;
    uint64_t deadline_us;
    struct key256 tenant;         /* cache domain; zero = default */
    uint32_t tenant_index;
    struct engine_sampling sampling;
};

enum engine_finish { ENGINE_FINISH_STOP, ENGINE_FINISH_LENGTH, ENGINE_FINISH_CANCELLED, ENGINE_FINISH_ERROR };

struct engine_logprob {
    float logprob;
    uint32_t rank;
    uint32_t n_top;
    const uint32_t *top_ids;      /* [n_top] borrowed until the sink returns */
    const float *top_logprobs;
};

enum engine_event_kind {
    ENGINE_EVENT_TOKEN,          /* one generated token of one choice */
    ENGINE_EVENT_PROMPT_LOGPROB, /* of prompt token `position` (1..n_prompt - 1), choice 0, in rising order */
    ENGINE_EVENT_DONE,           /* one choice is over; `last` when it was the request's last one */
};
struct engine_event {
    enum engine_event_kind kind;
    uint64_t request;
    uint32_t choice;
    uint32_t token;               /* TOKEN: the id. PROMPT_LOGPROB: the prompt's id there. DONE: the stop token when has_stop_token */
    uint32_t position;
    bool has_logprob;
    struct engine_logprob logprob;
    enum engine_finish finish;    /* DONE */
    bool has_stop_token;          /* DONE: it ended by eos (token is an eos id) or a stop_token_id */
    bool last;                    /* DONE: nothing more comes for this request id */
    uint32_t n_prompt, n_cached, n_generated; /* DONE */
    const char *message;          /* DONE with ENGINE_FINISH_ERROR */
};

/* Called on the engine thread with everything a step gave, in order. Must not block and must not
 * call engine_ functions. The eos or stop token itself is also given as a TOKEN event before DONE. */
typedef void (*engine_sink)(void *context, const struct engine_event *events, size_t n_events);

/* sink_context is handed to every call of the sink. */
int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context,
                struct engine **out, struct quire_error *err);
/* Cancels everything, joins the thread, frees everything. */
void engine_close(struct engine *e);

/* Any thread. QUIRE_EXHAUSTED: full; *retry_after_ms says when to come back. QUIRE_INVALID: names the parameter. Prefix
 * hashes are computed here, off the engine thread. */
int engine_submit(struct engine *e, const struct engine_request *request, uint32_t *retry_after_ms,
                  struct quire_error *err);
/* Any thread. Its DONE events (CANCELLED) still come. Unknown ids are ignored. */
void engine_cancel(struct engine *e, uint64_t request);
void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice);

/* New requests are refused (QUIRE_EXHAUSTED) from here on; running ones finish. */
void engine_drain(struct engine *e);

struct engine_info {
    const struct model_desc *desc;
    const struct model_sampling_defaults *sampling;
    const struct engine_plan *plan;
    const char *device_why;       /* which backend was taken, and why */
    enum k_gemm_form gemm_form;   /* the one taken */
    const char *placement;        /* how many threads compute, on which CPUs, and where memory lies */
    double open_seconds;
};
const struct engine_info *engine_info(const struct engine *e);

struct engine_stats {
    uint32_t n_running, n_waiting;
    uint64_t n_waiting_tokens;
    double kv_usage;              /* 0..1 of the fullest group: referenced blocks */
    uint64_t n_preemptions, n_prefix_queries, n_prefix_hits;
    uint64_t n_prompt_tokens, n_generation_tokens, n_steps;
    uint64_t n_blocks_leaked;     /* blocks referenced while no sequence lives: always 0 */
    bool draining, dead;
};
/* Any thread: a snapshot of the last step boundary. */
void engine_stats(const struct engine *e, struct engine_stats *out);

#endif
