/* The order of requests. A policy is a table of functions over its own state; one file each, policies/NAME.c.
 *
 * A policy returns numbers, and the scheduler sorts by them: live requests before background ones, then the lower flow
 * rank, then the lower rank, then the submission order. This order decides which request is admitted, which gets the
 * rest of a step for its prompt, and, in reverse, which is preempted.
 *
 * The rank of a waiting sequence must not change, because the queue is a heap. It need not change either: waiting is
 * priced in microseconds of arrival. A rank of `arrival + price of the request` orders any two requests in the same way
 * at every moment, and a request cannot be overtaken by requests that arrive later than its price. This is how ageing
 * limits waiting here, without updates.
 *
 * A flow is a set of sequences that share one counter (`fair`: a tenant). Flow ranks may change at any call. Policies
 * without flows leave the flow functions NULL.
 *
 * Pure: no clock, thread or I/O. Called on the scheduler's thread only. Nothing is allocated after create().
 */
#ifndef QUIRE_SCHEDULER_POLICY_H
#define QUIRE_SCHEDULER_POLICY_H

#include "base/status.h"
#include "scheduler/cost.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_MAX_TENANTS 1024u
#define SCHED_MAX_CLASSES 8u

/* A tenant's shares and limits. */
struct sched_tenant {
    uint32_t weight; /* 1..1000 */
    uint32_t group; /* tenants of the same group share its weight: an organisation with several keys; 0: none */
    uint32_t group_weight; /* 1..1000; the same for all tenants of a group; read if group is not 0 */
    uint32_t max_seats, max_kv_blocks; /* of its running sequences, under every policy (caps.h); 0: no limit */
};

/* Options of the operator. Zero everywhere selects every policy's defaults. */
struct sched_policy_options {
    /* waiting time that equals one unit of a policy's preference: a priority level, 1,000 expected tokens, 1,000 cached
     * tokens */
    uint64_t ageing_us;
    uint32_t n_tenants; /* 0 = 1; at most SCHED_MAX_TENANTS */
    const struct sched_tenant *tenants; /* [n_tenants]; NULL: equal weights; copied by create() */
    uint32_t class_weights[SCHED_MAX_CLASSES]; /* `priority`: shares of the classes, at most 1000; all 0: no shares */
    uint64_t class_ttft_us[SCHED_MAX_CLASSES]; /* `edf`: target of requests without deadline */
    /* `fair`: prices of service. With a cost model, of the time of rows that compute prompts, and of others; 0: 1 and 1.
     * Without one, of a computed prompt token, and of a generated one; 0: 1 and 2 */
    uint32_t prompt_price, output_price;
    /* `fair`: percentage of the step target that prompts have although decodes alone exceed it; 0: 25 */
    uint32_t prefill_share;
};

/* The data of a sequence that a policy may use. */
struct sched_candidate {
    uint64_t order; /* submission order, unique */
    uint64_t arrival_us;
    uint64_t deadline_us; /* for the first token; 0: no deadline */
    int32_t priority;
    uint32_t tenant, class_index;
    uint32_t n_prompt, max_tokens;
    uint32_t n_known; /* prompt and generated tokens */
    uint32_t n_computed;
    /* positions in the prefix cache at the last lookup; only for policies with ranks_by_cache, otherwise 0 */
    uint32_t n_cached;
    uint32_t expected_tokens; /* how many tokens the caller expects to generate; 0: unknown */
    bool background; /* after all live requests, under every policy */
    uint64_t lost_seat_us; /* it waits because another one took its seat or its blocks at this time; 0: not so */
    uint32_t flow; /* the scheduler's copies of the policy's results */
    uint64_t rank;
};

/* The service that a plan gives a sequence, when it is planned; accepted drafts, when they are committed. */
struct sched_service {
    uint32_t n_prompt; /* prompt positions computed for the first time */
    uint32_t n_recomputed; /* positions computed before and lost to a preemption */
    uint32_t n_cached; /* prompt positions found in the cache at first admission */
    uint32_t n_generated; /* tokens that will be sampled */
};

/* Flows in groups: the lower group rank is first, then the lower flow rank within the group. */
struct sched_flow_groups {
    const uint32_t *of; /* [n_flows] the group of a flow */
    const uint64_t *ranks; /* of groups */
};

/* The load, for a policy that rejects requests. */
struct sched_load {
    uint64_t now_us;
    double prefill_us; /* time of the sequence's own prompt, computed alone; 0: no cost model */
    double us_per_token; /* recent average over all tokens of steps with prompts; 0: unknown */
    uint64_t n_tokens_before; /* waiting prompt tokens that would be computed first */
};

struct sched_policy {
    const char *name;
    const char *about; /* one line, for --help */
    bool ranks_running; /* a running sequence gets a new rank in every step */
    bool ranks_by_cache; /* n_cached is looked up when a sequence is queued and from time to time */
    bool flows_are_tenants; /* flow() returns the tenant */

    /* Both NULL for a policy without state. */
    int (*create)(const struct sched_policy_options *options, void **state, struct quire_error *err);
    void (*destroy)(void *state);
    /* Called after create() if there is a cost model, and when it changes. It outlives the policy. Service charged before
     * stays charged. May be NULL. */
    void (*use_cost)(void *state, const struct sched_cost *cost);

    /* The lower rank is first. Called when a sequence enters the queue, when it is admitted and, with ranks_running, in
     * every step for running sequences. NULL: only the submission order counts. */
    uint64_t (*rank)(void *state, const struct sched_candidate *c);

    /* The sequence's flow, below n_flows(), and the ranks of all flows, in an array that does not move. flow_begins: a
     * sequence of the flow waits and none did before. flow_admits: the flow is the first of those that wait, and one of
     * its sequences is admitted; called before that one is served. */
    uint32_t (*n_flows)(const void *state);
    uint32_t (*flow)(const void *state, const struct sched_candidate *c);
    const uint64_t *(*flow_ranks)(const void *state);
    /* Returns NULL, as a missing function does, if flows have no groups. The arrays do not move. */
    const struct sched_flow_groups *(*flow_groups)(const void *state);
    void (*flow_begins)(void *state, uint32_t flow);
    void (*flow_admits)(void *state, uint32_t flow);
    /* How much more than its share a flow had, compared with another one, in quanta; 0: no more. Rows of flows that are
     * ahead of most may lengthen a step only to a limit (order.c). Flows of one group: within it. May be NULL. */
    double (*flow_lead)(const void *state, uint32_t flow, uint32_t of);
    /* Returns whether a flow may be served while the first sequence of another one finds no blocks. NULL: no. */
    bool (*flow_passes)(const void *state, const struct sched_candidate *first, uint32_t flow);
    /* Returns whether a waiting sequence takes the seat of a running one, when all seats are taken, or its blocks, when it
     * finds none. load: as for refuse(), of the waiting one. NULL: no. */
    bool (*takes_seat)(const void *state, const struct sched_candidate *waiting, const struct sched_candidate *running,
                       const struct sched_load *load);
    /* Percentage of the step target that prompts have although decodes alone exceed it; 0: the default. */
    uint32_t (*prefill_share)(const void *state);

    /* A row of the sequence was planned, or gave more tokens than planned. May be NULL. */
    void (*served)(void *state, const struct sched_candidate *c, const struct sched_service *service);
    /* With a cost model: the part of a planned step's time that a flow's rows take. prompt: those that compute a prompt.
     * Not called for the background. May be NULL. */
    void (*spent)(void *state, uint32_t flow, bool prompt, double us);
    /* The sequence ended by its stop or length, or its choice was ended, after n generated tokens. May be NULL. */
    void (*finished)(void *state, const struct sched_candidate *c, uint32_t n_generated);
    /* The request was cancelled; this sequence of it had n generated tokens. May be NULL. */
    void (*cancelled)(void *state, const struct sched_candidate *c, uint32_t n_generated);
    /* Returns 0, or the time in microseconds after which to retry: the request is then rejected. Called at submission
     * and for the head of the queue in every plan, only for requests that have not run. May be NULL. */
    uint64_t (*refuse)(void *state, const struct sched_candidate *c, const struct sched_load *load);
    /* A figure of the policy for people, with its name in *name (sjf: mean error of its estimates, in percent). May be
     * NULL. */
    double (*figure)(const void *state, const char **name);
};

/* Returns NULL if no policy has this name. */
const struct sched_policy *sched_policy_find(const char *name);
/* The names, separated by commas, for messages. */
const char *sched_policy_names(void);
/* The i-th policy; NULL after the last. */
const struct sched_policy *sched_policy_at(uint32_t i);

#endif
