/* Fair shares of service between tenants: virtual token counters (Sheng et al., OSDI 2024) with weights. Each tenant is
 * a flow. The tenant with the least service for its weight is first; within a tenant, the earliest request is first.
 *
 * Prompt tokens computed for the first time and generated tokens are charged at their prices when their row is planned.
 * Not charged are tokens saved by the prefix cache, because nobody loses anything; recomputed tokens, because a
 * preemption is not the tenant's fault; and background work, which uses only capacity that live requests leave.
 * docs/internals/scheduling.md derives how far two tenants can diverge.
 */
#include "scheduler/counters.h"
#include "scheduler/policies/policies.h"

#include <stdlib.h>

#define MAX_WEIGHT 1000u
#define MAX_PRICE 1000u
#define DEFAULT_PROMPT_PRICE 1u
#define DEFAULT_OUTPUT_PRICE 2u
#define DEFAULT_SHARE 50u

struct fair {
    struct counters counters;
    uint32_t prompt_price, output_price, share;
};

static int check(const struct sched_policy_options *o, struct quire_error *err)
{
    for (uint32_t i = 0; o->tenant_weights && i < o->n_tenants; i++)
        if (o->tenant_weights[i] == 0 || o->tenant_weights[i] > MAX_WEIGHT)
            return quire_fail(err, QUIRE_INVALID, "weight of tenant %u: must be 1 to %u, got %u", i, MAX_WEIGHT,
                              o->tenant_weights[i]);
    if (o->prompt_price > MAX_PRICE || o->output_price > MAX_PRICE)
        return quire_fail(err, QUIRE_INVALID, "prices: must be at most %u, got %u and %u", MAX_PRICE, o->prompt_price,
                          o->output_price);
    if (o->prefill_share > 100)
        return quire_fail(err, QUIRE_INVALID, "prefill share: must be at most 100, got %u", o->prefill_share);
    return QUIRE_OK;
}

static int create(const struct sched_policy_options *o, void **state, struct quire_error *err)
{
    int status = check(o, err);
    if (status)
        return status;
    struct fair *fair = calloc(1, sizeof *fair);
    if (!fair ||
        counters_init(&fair->counters, o->n_tenants ? o->n_tenants : 1, o->n_tenants ? o->tenant_weights : NULL)) {
        free(fair);
        return quire_fail(err, QUIRE_NO_MEMORY, "fair: out of memory");
    }
    fair->prompt_price = o->prompt_price ? o->prompt_price : DEFAULT_PROMPT_PRICE;
    fair->output_price = o->output_price ? o->output_price : DEFAULT_OUTPUT_PRICE;
    fair->share = o->prefill_share ? o->prefill_share : DEFAULT_SHARE;
    *state = fair;
    return QUIRE_OK;
}

static void destroy(void *state)
{
    struct fair *fair = state;
    if (fair)
        counters_free(&fair->counters);
    free(fair);
}

static uint32_t n_flows(const void *state)
{
    return ((const struct fair *)state)->counters.n;
}

static uint32_t flow(const void *state, const struct sched_candidate *c)
{
    (void)state;
    return c->tenant;
}

static const uint64_t *flow_ranks(const void *state)
{
    return ((const struct fair *)state)->counters.ranks;
}

static void flow_begins(void *state, uint32_t tenant)
{
    counters_begin(&((struct fair *)state)->counters, tenant);
}

static void flow_admits(void *state, uint32_t tenant)
{
    counters_admit(&((struct fair *)state)->counters, tenant);
}

/* A long prompt needs many blocks at once. Until they are free, other tenants may be served as long as they are ahead
 * by at most the price of the prompt. */
static uint64_t flow_patience(const void *state, const struct sched_candidate *first)
{
    const struct fair *fair = state;
    return counters_cost(&fair->counters, first->tenant, (uint64_t)first->n_prompt * fair->prompt_price);
}

static uint32_t prefill_share(const void *state)
{
    return ((const struct fair *)state)->share;
}

static void served(void *state, const struct sched_candidate *c, const struct sched_service *service)
{
    struct fair *fair = state;
    uint64_t cost = (uint64_t)service->n_prompt * fair->prompt_price +
                    (uint64_t)service->n_generated * fair->output_price;
    if (!c->background)
        counters_charge(&fair->counters, c->tenant, cost);
}

const struct sched_policy sched_policy_fair = {
    .name = "fair",
    .about = "the tenant with the least service for its weight first",
    .create = create,
    .destroy = destroy,
    .n_flows = n_flows,
    .flow = flow,
    .flow_ranks = flow_ranks,
    .flow_begins = flow_begins,
    .flow_admits = flow_admits,
    .flow_patience = flow_patience,
    .prefill_share = prefill_share,
    .served = served,
};
