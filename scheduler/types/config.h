/* How a scheduler is made: its limits, the composition of batches, and preemption. Data only. sched_create() copies
 * it and what it points to. Times are in microseconds, lengths in tokens. */
#ifndef QUIRE_SCHEDULER_TYPES_CONFIG_H
#define QUIRE_SCHEDULER_TYPES_CONFIG_H

#include "base/hash.h"
#include "memory/kv_cache.h"
#include "scheduler/cost.h"
#include "scheduler/policy.h"

#include <stdbool.h>
#include <stdint.h>

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
    /* limits a step's prompt tokens so that the predicted time stays below it; 0: no target. No effect without a cost
     * model */
    uint64_t step_target_us;
    bool adaptive_budget; /* scale the prediction by recent step times (budget.h) */
    enum sched_batching batching;
    uint32_t max_batch_size; /* for dynamic and static batches; 0: max_num_seqs */
    uint64_t max_wait_us; /* of dynamic batches */
    /* the same for batches with a request of a class, and for the wait of such requests; 0: as above */
    uint32_t class_batch_size[SCHED_MAX_CLASSES];
    uint64_t class_wait_us[SCHED_MAX_CLASSES];
    bool adaptive_batches; /* correct sizes and waits by queue and idle time (state/batches.h) */
    enum sched_preemption preemption;
    uint32_t max_pinned_percent; /* percentage of a group's blocks; 0: 50, and no pins for cached answers */
#define SCHED_NO_PINS UINT32_MAX /* of max_pinned_percent: no pins at all */
    const struct sched_cost *cost; /* NULL: no cost model, until sched_set_cost() */

    struct key256 secret; /* key of the hash chain, for blocks filled by generated tokens */
};

#endif
