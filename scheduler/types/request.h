/* A request as sched_submit() of scheduler.h takes it. Data only: the scheduler copies it and keeps no pointer to the
 * caller's memory, except an owned prompt. Times are in microseconds, lengths in tokens. */
#ifndef QUIRE_SCHEDULER_TYPES_REQUEST_H
#define QUIRE_SCHEDULER_TYPES_REQUEST_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

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

#endif
