/* A sequence and its request, shared by the files of scheduler/ and private to them. Owned by struct sched.
 *
 * The states of a sequence, and the function of each transition:
 *
 *   FREE --sched_submit--> WAITING (choice 0)        FREE --sched_submit--> FOLLOWING (the others)
 *   FOLLOWING --sched_release_followers, or its leader ended--> WAITING
 *   WAITING --sched_plan admits--> RUNNING
 *   RUNNING --sched_plan preempts--> LEAVING (a launched step touches it) or WAITING
 *   LEAVING --sched_commit of that step--> WAITING
 *   any live state --over: sched_end--> ENDING (a launched step touches it) or RETIRED
 *   ENDING --sched_commit of that step--> RETIRED
 *   RETIRED --sched_next_retired--> FREE
 *
 * The counters of a sequence, all in positions from 0:
 *
 *   0 … n_computed … n_planned … n_known + n_sampling ≤ n_prompt + max_tokens
 *   computed, step    launched,  known tokens, then
 *   committed         not yet    those being sampled
 *
 * While a row that verifies drafts is launched, n_planned is n_drafting past n_known, and nothing more is planned. Its
 * commit sets n_planned back to n_computed, after the last accepted draft. */
#ifndef QUIRE_SCHEDULER_STATE_SEQUENCE_STATE_H
#define QUIRE_SCHEDULER_STATE_SEQUENCE_STATE_H

#include "base/hash.h"
#include "memory/kv_cache.h"
#include "scheduler/pins.h"
#include "scheduler/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum seq_state {
    SEQ_FREE = 0,
    SEQ_WAITING,   /* to be admitted; queued */
    SEQ_FOLLOWING, /* waits until the plan has its leader's prompt */
    SEQ_RUNNING,   /* has a block table */
    SEQ_LEAVING,   /* preempted; keeps its table until its last launched step is committed */
    SEQ_ENDING,    /* over, likewise */
    SEQ_RETIRED,   /* over, to be collected by sched_next_retired */
};

/* Why a sequence waits until the host has its tokens. */
enum seq_gate {
    SEQ_GATE_SAMPLER = 1, /* sched_request.host_gated */
    SEQ_GATE_DRAFTS = 2,  /* sched_gate() */
};

/* A request: its choices are sequences. */
struct sched_job {
    uint64_t id;
    uint32_t n, n_live;        /* choices; those that are not over */
    uint32_t n_waiting_tokens; /* length of the prompt until a choice is first admitted, then 0 */
    bool prompt_logprobs, no_prefix_hits, vector; /* of its request */
    struct pin *pin;           /* takes over the prompt's blocks when choice 0 ends; NULL: no pin */
    uint64_t keep_us, keep_name; /* of its request */
    struct key256 chain_first;   /* the link before the name of its first block */
    uint32_t seqs[];           /* [n] names; the name of a choice that is over may belong to another request */
};

/* How far a sequence has come, whatever preemptions took. */
struct seq_reach {
    uint32_t n;         /* positions ever planned: below it, a row recomputes */
    uint64_t seat_step; /* since its admission, the first plan with a position never planned before; 0: none */
};

/* Fields that every step reads come first: a step walks a thousand sequences twice. */
struct sequence {
    enum seq_state state;
    bool leads;           /* computes the prompt for the choices that follow; false after it is planned */
    uint8_t gates;        /* bits of seq_gate; a gated sequence is not planned past the known tokens */
    bool was_admitted;
    uint8_t n_proposed;   /* drafts after the known tokens, for the next row that gives a token */
    uint8_t n_drafting;   /* drafts that a launched row verifies */
    uint32_t n_positions; /* positions to compute in all, without that of the last token */
    uint32_t n_known, n_sampling;
    uint32_t n_computed, n_planned;
    uint32_t n_reserved;  /* positions for which the table has blocks */
    uint32_t n_published; /* leading blocks of the table that were offered to the index */
    uint32_t last_first;  /* first position of the last row */
    uint64_t last_step;   /* the last plan with a row of this sequence */
    uint64_t lent_rank;   /* the best of those that wait for its prompt; UINT64_MAX: none does */
    struct seq_reach reach;
    uint32_t *tokens;     /* [key.n_prompt + key.max_tokens], and after them the hashes; owned */

    struct sched_candidate key;
    struct sched_job *job; /* NULL after its end */
    struct kv_table *table;  /* NULL: holds no table */

    uint32_t n_hashes;        /* known names of its blocks: seq_hashes() */
    uint32_t n_prompt_logits; /* prompt positions whose logits were in a plan; SEQ_NO_LOGITS: none is needed */
};

#define SEQ_NO_LOGITS UINT32_MAX

/* [n_positions / block_tokens] names of full blocks; n_hashes of them are known. */
static inline struct key256 *seq_hashes(const struct sequence *q)
{
    return (struct key256 *)(void *)(q->tokens + (size_t)q->key.n_prompt + q->key.max_tokens);
}

#endif
