/* The lowest priority number first; first come, first served among equals.
 *
 * A level counts as ageing_us of waiting: rank = arrival + priority × ageing_us. A request of priority p is therefore
 * overtaken only by requests of a lower number q that arrive less than (p − q) × ageing_us after it. An ageing longer
 * than any wait makes the order strict.
 *
 * With class weights, the classes are flows that share service (computed prompt tokens and generated tokens) by their
 * weights (counters.h). Priority orders requests within a class, and the bound holds there.
 */
#include "scheduler/policies/counters.h"
#include "scheduler/policies/policies.h"

#include <stdlib.h>

#define MAX_WEIGHT 1000u
#define HEAD_START 1024u /* tokens */

/* About the time of a long answer. A level decides while the queue is no longer than that, and ten levels delay a
 * request by newcomers for at most five minutes. */
#define DEFAULT_AGEING_US 30000000u

/* Rank of priority 0 at time 0. The whole int32 range fits around it with an ageing of more than an hour per level;
 * values beyond it are clamped. */
#define MIDDLE (UINT64_MAX / 2 + 1)

struct priority {
    uint64_t ageing_us;
    struct counters classes; /* n 0: no weights */
};

static void destroy(void *state)
{
    struct priority *p = state;
    if (p)
        counters_free(&p->classes);
    free(p);
}

/* Classes without a weight get 1. Returns false if no class has a weight. */
static bool weights_of(const struct sched_policy_options *options, uint32_t *weights)
{
    bool any = false;
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++) {
        any = any || options->class_weights[i] > 0;
        weights[i] = options->class_weights[i] > 0 ? options->class_weights[i] : 1;
    }
    return any;
}

static int create(const struct sched_policy_options *options, void **state, struct quire_error *err)
{
    uint32_t weights[SCHED_MAX_CLASSES];
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        if (options->class_weights[i] > MAX_WEIGHT)
            return quire_fail(err, QUIRE_INVALID, "weight of class %u: must be at most %u, got %u", i, MAX_WEIGHT,
                              options->class_weights[i]);
    struct priority *p = calloc(1, sizeof *p);
    if (!p ||
        (weights_of(options, weights) && counters_init(&p->classes, SCHED_MAX_CLASSES, weights, NULL, HEAD_START))) {
        destroy(p);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    p->ageing_us = options->ageing_us ? options->ageing_us : DEFAULT_AGEING_US;
    *state = p;
    return QUIRE_OK;
}

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    const struct priority *p = state;
    uint64_t at = sched_later(MIDDLE, 1, c->arrival_us);
    if (c->priority >= 0)
        return sched_later(at, (uint64_t)c->priority, p->ageing_us);
    uint64_t earlier = sched_later(0, (uint64_t)-(int64_t)c->priority, p->ageing_us);
    return at > earlier ? at - earlier : 0;
}

static uint32_t n_flows(const void *state)
{
    const struct priority *p = state;
    return p->classes.n > 0 ? p->classes.n : 1;
}

static uint32_t flow(const void *state, const struct sched_candidate *c)
{
    const struct priority *p = state;
    return p->classes.n > 0 ? c->class_index : 0;
}

static const uint64_t *flow_ranks(const void *state)
{
    static const uint64_t one_flow[1];
    const struct priority *p = state;
    return p->classes.n > 0 ? p->classes.ranks : one_flow;
}

static void flow_begins(void *state, uint32_t index)
{
    struct priority *p = state;
    if (p->classes.n > 0)
        counters_begin(&p->classes, index);
}

static void flow_admits(void *state, uint32_t index)
{
    struct priority *p = state;
    if (p->classes.n > 0)
        counters_admit(&p->classes, index);
}

static void served(void *state, const struct sched_candidate *c, const struct sched_service *service)
{
    struct priority *p = state;
    if (p->classes.n > 0 && !c->background)
        counters_charge(&p->classes, c->flow, service->n_prompt + service->n_generated);
}

/* A higher class of priority does not wait for the end of a lower one's answer. */
static bool takes_seat(const void *state, const struct sched_candidate *waiting, const struct sched_candidate *running,
                       const struct sched_load *load)
{
    (void)load;
    const struct priority *p = state;
    if (p->classes.n > 0 && waiting->flow != running->flow)
        return counters_lead(&p->classes, running->flow, waiting->flow) > HEAD_START;
    return waiting->priority < running->priority && waiting->rank < running->rank;
}

const struct sched_policy sched_policy_priority = {
    .name = "priority",
    .about = "lowest \"priority\" field first; a longer wait offsets priority levels",
    .create = create,
    .destroy = destroy,
    .rank = rank,
    .n_flows = n_flows,
    .flow = flow,
    .flow_ranks = flow_ranks,
    .flow_begins = flow_begins,
    .flow_admits = flow_admits,
    .takes_seat = takes_seat,
    .served = served,
};
