/* A step plan, which sched_plan() of scheduler.h makes, and its results, which sched_commit() takes. Data only: a plan
 * and its arrays belong to the scheduler. Positions and counts are in tokens, times in microseconds. */
#ifndef QUIRE_SCHEDULER_TYPES_PLAN_H
#define QUIRE_SCHEDULER_TYPES_PLAN_H

#include "memory/kv_cache.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_MAX_DRAFT 64u

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

/* The result of a row with outputs.tokens: the accepted drafts, and the token after them. The positions of the other
 * drafts count as not computed. */
struct sched_result {
    uint32_t seq;
    uint32_t n_accepted; /* at most the row's n_draft */
    const uint32_t *tokens; /* [n_accepted + 1]; the accepted tokens equal the drafts */
    bool finished; /* the caller detected a stop: the sequence ends with these tokens */
};

#endif
