/* Fair shares of service between tenants: virtual counters (Sheng et al., OSDI 2024) with weights, at two levels. The
 * organisation with the least service for its weight is first, then its tenant with the least, then the earliest
 * request. A tenant without an organisation is one by itself.
 *
 * With a cost model, service is time: a row is charged its part of the predicted time of its step, whatever it is for.
 * The parts of a step's rows add up to the step. Without a cost model, service is tokens: prompt tokens computed for the
 * first time, and generated tokens. Background work is never charged, because it uses only capacity that live requests
 * leave. docs/internals/scheduling.md derives how far two tenants can diverge.
 */
#include "scheduler/policies/counters.h"
#include "scheduler/policies/policies.h"

#include <stdlib.h>

#define MAX_WEIGHT 1000u
#define MAX_PRICE 1000u
#define DEFAULT_OUTPUT_PRICE 2u /* of a token; of a microsecond: 1 */
#define TOKEN_QUANTUM 1024u     /* without a cost model */
#define UNITS_PER_US 16         /* a small row takes some 20 us */
#define MAX_CHARGE_US 1e9       /* more is charged as this */
#define PATIENCE_CHUNK 512u     /* the price of a prompt is its time in chunks of this */

struct fair {
    struct counters tenants; /* within their organisation */
    struct counters groups;  /* the organisations; each is named by its first tenant */
    struct sched_flow_groups of;
    bool grouped;            /* two tenants share an organisation */
    const struct sched_cost *cost; /* NULL: service is tokens */
    uint32_t prompt_price, output_price, share;
    bool own_output_price;   /* the operator's */
    uint64_t quantum;        /* in units */
};

static int check(const struct sched_policy_options *o, struct quire_error *err)
{
    for (uint32_t i = 0; o->tenants && i < o->n_tenants; i++) {
        const struct sched_tenant *t = &o->tenants[i];
        if (t->weight == 0 || t->weight > MAX_WEIGHT)
            return quire_fail(err, QUIRE_INVALID, "weight of tenant %u: must be 1 to %u, got %u", i, MAX_WEIGHT,
                              t->weight);
        if (t->group > 0 && (t->group_weight == 0 || t->group_weight > MAX_WEIGHT))
            return quire_fail(err, QUIRE_INVALID, "weight of tenant %u's organisation: must be 1 to %u, got %u", i,
                              MAX_WEIGHT, t->group_weight);
    }
    if (o->prompt_price > MAX_PRICE || o->output_price > MAX_PRICE)
        return quire_fail(err, QUIRE_INVALID, "prices: must be at most %u, got %u and %u", MAX_PRICE, o->prompt_price,
                          o->output_price);
    if (o->prefill_share > 100)
        return quire_fail(err, QUIRE_INVALID, "prefill share: must be at most 100, got %u", o->prefill_share);
    return QUIRE_OK;
}

/* The first tenant of the same organisation. */
static uint32_t group_of(const struct sched_policy_options *o, uint32_t tenant)
{
    for (uint32_t i = 0; o->tenants && o->tenants[tenant].group > 0 && i < tenant; i++)
        if (o->tenants[i].group == o->tenants[tenant].group)
            return i;
    return tenant;
}

static int init_counters(struct fair *fair, const struct sched_policy_options *o)
{
    uint32_t n = o->n_tenants ? o->n_tenants : 1, weights[SCHED_MAX_TENANTS], groups[SCHED_MAX_TENANTS],
             group_weights[SCHED_MAX_TENANTS];
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_tenant *t = o->n_tenants && o->tenants ? &o->tenants[i] : NULL;
        groups[i] = o->n_tenants ? group_of(o, i) : 0;
        fair->grouped |= groups[i] != i;
        weights[i] = t ? t->weight : 1;
        group_weights[i] = t && t->group > 0 ? t->group_weight : weights[i];
    }
    if (counters_init(&fair->tenants, n, weights, groups, TOKEN_QUANTUM))
        return QUIRE_NO_MEMORY;
    return counters_init(&fair->groups, n, group_weights, NULL, TOKEN_QUANTUM);
}

static void destroy(void *state)
{
    struct fair *fair = state;
    if (!fair)
        return;
    counters_free(&fair->tenants);
    counters_free(&fair->groups);
    free(fair);
}

static int create(const struct sched_policy_options *o, void **state, struct quire_error *err)
{
    int status = check(o, err);
    if (status)
        return status;
    struct fair *fair = calloc(1, sizeof *fair);
    if (!fair || init_counters(fair, o)) {
        destroy(fair);
        return quire_fail(err, QUIRE_NO_MEMORY, "fair: out of memory");
    }
    fair->of = (struct sched_flow_groups){.of = fair->tenants.sets, .ranks = fair->groups.ranks};
    fair->prompt_price = o->prompt_price ? o->prompt_price : 1;
    fair->own_output_price = o->output_price > 0;
    fair->output_price = fair->own_output_price ? o->output_price : DEFAULT_OUTPUT_PRICE;
    fair->share = o->prefill_share;
    fair->quantum = TOKEN_QUANTUM;
    *state = fair;
    return QUIRE_OK;
}

static void use_cost(void *state, const struct sched_cost *cost)
{
    struct fair *fair = state;
    uint64_t quantum = (uint64_t)(sched_cost_quantum_us(cost) * UNITS_PER_US);
    if (!fair->cost) { /* tokens become time: leads keep their length in quanta */
        double factor = (double)quantum / (double)fair->quantum;
        counters_convert(&fair->tenants, factor);
        counters_convert(&fair->groups, factor);
    }
    fair->cost = cost;
    if (!fair->own_output_price)
        fair->output_price = 1;
    fair->quantum = quantum;
    fair->tenants.head_start = fair->groups.head_start = quantum;
}

/* ---- flows ---- */

static uint32_t n_flows(const void *state)
{
    return ((const struct fair *)state)->tenants.n;
}

static uint32_t flow(const void *state, const struct sched_candidate *c)
{
    (void)state;
    return c->tenant;
}

static const uint64_t *flow_ranks(const void *state)
{
    const struct fair *fair = state;
    return fair->grouped ? fair->tenants.ranks : fair->groups.ranks;
}

static const struct sched_flow_groups *flow_groups(const void *state)
{
    const struct fair *fair = state;
    return fair->grouped ? &fair->of : NULL;
}

static void flow_begins(void *state, uint32_t tenant)
{
    struct fair *fair = state;
    counters_begin(&fair->tenants, tenant);
    counters_begin(&fair->groups, fair->of.of[tenant]);
}

static void flow_admits(void *state, uint32_t tenant)
{
    struct fair *fair = state;
    counters_admit(&fair->tenants, tenant);
    counters_admit(&fair->groups, fair->of.of[tenant]);
}

/* Among the tenants of an organisation, or among organisations. */
static double flow_lead(const void *state, uint32_t flow, uint32_t of)
{
    const struct fair *fair = state;
    uint32_t a = fair->of.of[flow], b = fair->of.of[of];
    double units = a == b ? counters_lead(&fair->tenants, flow, of) : counters_lead(&fair->groups, a, b);
    return units / (double)fair->quantum;
}

/* A long prompt needs many blocks at once. Until they are free, other tenants may be served as long as they are ahead
 * by at most the price of the prompt. */
static bool flow_passes(const void *state, const struct sched_candidate *first, uint32_t flow)
{
    const struct fair *fair = state;
    uint64_t units = first->n_prompt;
    if (fair->cost)
        units = (uint64_t)(sched_cost_prefill_us(fair->cost, 0, first->n_prompt, PATIENCE_CHUNK) * UNITS_PER_US);
    units *= fair->prompt_price;
    uint32_t a = fair->of.of[flow], b = fair->of.of[first->tenant];
    const struct counters *c = a == b ? &fair->tenants : &fair->groups;
    uint32_t i = a == b ? flow : a, j = a == b ? first->tenant : b;
    return c->ranks[i] <= c->ranks[j] || c->ranks[i] - c->ranks[j] <= counters_cost(c, j, units);
}

static bool takes_seat(const void *state, const struct sched_candidate *waiting, const struct sched_candidate *running,
                       const struct sched_load *load)
{
    (void)load;
    return flow_lead(state, running->tenant, waiting->tenant) > 1;
}

static uint32_t prefill_share(const void *state)
{
    return ((const struct fair *)state)->share;
}

/* ---- charges ---- */

static void charge(struct fair *fair, uint32_t tenant, uint64_t units)
{
    counters_charge(&fair->tenants, tenant, units);
    counters_charge(&fair->groups, fair->of.of[tenant], units);
}

static void served(void *state, const struct sched_candidate *c, const struct sched_service *service)
{
    struct fair *fair = state;
    if (!c->background && !fair->cost)
        charge(fair, c->tenant,
               (uint64_t)service->n_prompt * fair->prompt_price + (uint64_t)service->n_generated * fair->output_price);
}

static void spent(void *state, uint32_t tenant, bool prompt, double us)
{
    struct fair *fair = state;
    double priced = us * (prompt ? fair->prompt_price : fair->output_price);
    if (fair->cost)
        charge(fair, tenant, (uint64_t)((priced < MAX_CHARGE_US ? priced : MAX_CHARGE_US) * UNITS_PER_US + 0.5));
}

const struct sched_policy sched_policy_fair = {
    .name = "fair",
    .about = "the tenant with the least service for its weight first",
    .flows_are_tenants = true,
    .create = create,
    .destroy = destroy,
    .use_cost = use_cost,
    .n_flows = n_flows,
    .flow = flow,
    .flow_ranks = flow_ranks,
    .flow_groups = flow_groups,
    .flow_begins = flow_begins,
    .flow_admits = flow_admits,
    .flow_lead = flow_lead,
    .flow_passes = flow_passes,
    .takes_seat = takes_seat,
    .prefill_share = prefill_share,
    .served = served,
    .spent = spent,
};
