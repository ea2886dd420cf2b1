/* Who goes first. A policy is a table of functions over a state of its own; one file each,
 * policies/NAME.c.
 *
 * A policy answers with numbers, and the scheduler sorts by them: live requests before background
 * ones, then the lower flow rank, then the lower rank, then submission order. That order decides at
 * once who is admitted, who gets what a step has left for prompts, and, backwards, who is preempted.
 *
 * Ranks do not change while a sequence waits (the queue is a heap), and need not: waiting is priced
 * in microseconds of arrival. A rank of `arrival + price of what it asks for` orders any two
 * requests the same at every moment, and lets nobody be overtaken by requests that arrive later than
 * the price: this is how ageing bounds waiting here, with nothing to update.
 *
 * A flow is a set of sequences that shares one counter (`fair`: a tenant). Flow ranks may change at
 * any call. Policies without flows leave the flow functions NULL.
 *
 * Pure: no clock, thread, I/O. The scheduler's thread only. Nothing is allocated after create().
 */
#ifndef QUIRE_SCHEDULER_POLICY_H
#define QUIRE_SCHEDULER_POLICY_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_MAX_TENANTS 1024u
#define SCHED_MAX_CLASSES 8u

/* What operators may set. Zero everywhere is every policy's default. */
struct sched_policy_options {
    uint64_t ageing_us;             /* what one unit of a policy's preference is worth in waiting: a
                                       priority level, 1,000 expected tokens, 1,000 cached tokens */
    uint32_t n_tenants;             /* 0 = 1; at most SCHED_MAX_TENANTS */
    const uint32_t *tenant_weights; /* [n_tenants], 1..1000; NULL = all 1; copied by create() */
    uint32_t class_weights[SCHED_MAX_CLASSES];   /* `priority`: shares between classes, at most 1000;
                                                    all 0 = none */
    uint64_t class_ttft_us[SCHED_MAX_CLASSES];   /* `edf`: target of requests without deadline */
    uint32_t prompt_price, output_price; /* `fair`: of a computed prompt token, of a generated one;
                                            0 = 1 and 2 */
    uint32_t prefill_share;         /* `fair`: percent of a step's prompt tokens that the prompts under
                                       way of one tenant may take while others want some; 0 = 50 */
};

/* What a policy may know of a sequence. */
struct sched_candidate {
    uint64_t order;           /* submission order, unique */
    uint64_t arrival_us;
    uint64_t deadline_us;     /* of the first token; 0 = none */
    int32_t priority;
    uint32_t tenant, class_index;
    uint32_t n_prompt, max_tokens;
    uint32_t n_known;         /* prompt and generated tokens */
    uint32_t n_computed;
    uint32_t n_cached;        /* positions found in the prefix cache when last looked up: kept for
                                 policies with ranks_by_cache, else 0 */
    uint32_t expected_tokens; /* to be generated, as the caller foretold; 0 = it did not */
    bool background;          /* below all live requests, under every policy */
    uint32_t flow;            /* the scheduler's copies of the policy's answers */
    uint64_t rank;
};

/* What a plan gives a sequence, as it is planned; accepted drafts, as they are committed. */
struct sched_service {
    uint32_t n_prompt;     /* prompt positions computed for the first time */
    uint32_t n_recomputed; /* positions computed before and lost to a preemption */
    uint32_t n_cached;     /* prompt positions that a first admission found in the cache */
    uint32_t n_generated;  /* tokens that will be sampled */
};

/* What a policy that refuses may know of the moment. */
struct sched_load {
    uint64_t now_us;
    double prefill_us;        /* the sequence's own prompt, computed alone; 0 = no cost model */
    double us_per_token;      /* of late, over all tokens of steps with prompts; 0 = not
                                 known yet */
    uint64_t n_tokens_before; /* waiting prompt tokens that would be computed before its own */
};

struct sched_policy {
    const char *name;
    const char *about; /* one line, for --help */
    bool ranks_running;  /* a running sequence is ranked anew in every step */
    bool ranks_by_cache; /* n_cached is looked up when a sequence is queued and from time to time; a
                            sequence whose next block another one is computing waits for it */

    /* Both NULL for a policy without state. */
    int (*create)(const struct sched_policy_options *options, void **state, struct quire_error *err);
    void (*destroy)(void *state);

    /* Lower goes first. Called when a sequence enters the queue, again when it is admitted, and for
     * the running in every step with ranks_running. NULL: submission order alone. */
    uint64_t (*rank)(void *state, const struct sched_candidate *c);

    /* The sequence's flow, below n_flows(); and the ranks of all flows, in an array that stays where it
     * is. A flow begins when somebody of it waits and nobody did. It admits when it is first of those that
     * wait and one of it is admitted, told before that one is served. */
    uint32_t (*n_flows)(const void *state);
    uint32_t (*flow)(const void *state, const struct sched_candidate *c);
    const uint64_t *(*flow_ranks)(const void *state);
    void (*flow_begins)(void *state, uint32_t flow);
    void (*flow_admits)(void *state, uint32_t flow);
    /* While the first of a flow finds no blocks, flows whose rank is above the flow's by at most this go
     * before it. NULL: none does. */
    uint64_t (*flow_patience)(const void *state, const struct sched_candidate *first);
    /* Percent of a step's prompt tokens that one flow may take while others want some; 0 = all. */
    uint32_t (*prefill_share)(const void *state);

    /* A row of the sequence was planned, or gave more tokens than planned. May be NULL. */
    void (*served)(void *state, const struct sched_candidate *c, const struct sched_service *service);
    /* The sequence ended by its stop or length, having generated n tokens. May be NULL. */
    void (*finished)(void *state, const struct sched_candidate *c, uint32_t n_generated);
    /* 0, or after how many microseconds it may be worth coming back: the request is refused now. Asked
     * at submission and for the head of the queue in every plan, only of requests that have not run.
     * May be NULL. */
    uint64_t (*refuse)(void *state, const struct sched_candidate *c, const struct sched_load *load);
    /* A figure of the policy's own for people, named in *name (sjf: mean error of its estimates, in
     * percent). May be NULL. */
    double (*figure)(const void *state, const char **name);
};

/* NULL when there is none of that name. */
const struct sched_policy *sched_policy_find(const char *name);
/* The names, comma separated, for messages. */
const char *sched_policy_names(void);
/* The i-th policy; NULL past the last. */
const struct sched_policy *sched_policy_at(uint32_t i);

#endif
