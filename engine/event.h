/* What an engine reports about its requests: tokens, logprobs, vectors, and how and why a choice ended. Events come on
 * the engine thread; their pointers are borrowed until the sink returns. Times are in microseconds, except where a name
 * says otherwise. */
#ifndef QUIRE_ENGINE_EVENT_H
#define QUIRE_ENGINE_EVENT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    uint64_t queue_nothing_us; /* waited for the next step only */
    uint64_t queue_budget_us; /* the step's token budget was used by earlier requests */
    uint64_t queue_seqs_us, queue_blocks_us;
    uint64_t queue_batch_us; /* its batch had not started */
    uint64_t queue_prefix_us; /* another request was computing the prefix that both share */
    uint64_t preempted_us; /* waiting again after preemptions */
    uint64_t blocker; /* the request that was admitted last before it, by the caller's id; 0: unknown */
    uint32_t blocker_tenant;
    uint32_t n_overtaken; /* at least this many later choices were admitted before it */
    uint32_t n_chunks; /* rows that computed known tokens; decode is not counted */
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

#endif
