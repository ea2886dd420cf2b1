/* Shortest job first within a tenant: the request with the earliest expected completion is first. Between tenants, the one
 * with the least service for its weight is first, as under `fair`.
 *
 * The remaining work of a request is the expected number of tokens still to generate, plus the known tokens to compute
 * first; eight of those count as one, because prompts are computed in bulk. A thousand tokens of work count as
 * ageing_us of waiting: rank = arrival + work × ageing_us / 1000. Work is never less than 0 nor more than max_tokens +
 * n_prompt / 8, so a request is overtaken only by requests of its tenant that arrive less than that work's price after
 * it.
 *
 * The length of an answer is estimated from finished requests, per tenant and octave of prompt lengths, with the
 * product-limit estimator of Kaplan and Meier (JASA 53, 1958) over octaves of output lengths, in which old requests
 * fade. An answer that max_tokens or a cancel cut off is censored: it says only that its length is at least that. The
 * first estimate is the mean of all of them. For a sequence with 2^k tokens, it is the mean of those that reached this
 * length, or, after it has exceeded that estimate, of those that reached 2^(k+1). If too few were seen, the tenant's
 * lengths for all prompts are used, then those of all tenants, then max_tokens. A length from the caller has precedence
 * until it is exceeded.
 *
 * A tenant decides what is learnt of it, so an estimate must not take service from others: what a request gets beyond
 * its estimate is debited to its tenant's counter like all service, and short requests that lower the estimates of long
 * ones bring only these before the tenant's own.
 */
#include "scheduler/policies/policies.h"

#include <stddef.h>
#include <stdlib.h>

/* A thousand tokens take some 20 to 50 s: the longest requests are delayed by a few times their own length, and a
 * backlog of minutes is still ordered. */
#define DEFAULT_AGEING_US 300000000u

#define PROMPT_OCTAVES 20
#define OUTPUT_OCTAVES 20
/* About this many recent requests count in an estimate. */
#define MEMORY 128
/* Fewer answers that got so far give no estimate. */
#define LEAST 4
/* Known tokens to compute that count as one generated token. */
#define PROMPT_PER_OUTPUT 8u
/* The lead at which a tenant loses a seat. With one quantum, as under `fair`, seats move in ordinary overload. A long
 * answer of the sender then loses its seat to another tenant, and its short ones are next: a tenant that adds requests
 * would lower the mean of its others to 0.73 of what it was. With four, the search finds nothing that pays. */
#define SEAT_QUANTA 4

struct lengths { /* by octaves: of lengths in [2^i, 2^(i+1)) */
    double n[OUTPUT_OCTAVES], sum[OUTPUT_OCTAVES]; /* of those that ended by themselves */
    double n_cut[OUTPUT_OCTAVES];
    uint32_t expected[OUTPUT_OCTAVES]; /* mean of those of 2^i and longer, to a sixteenth; 0: unknown */
};

struct tenant {
    struct lengths all, by_prompt[PROMPT_OCTAVES];
};

struct sjf {
    uint64_t ageing_us;
    struct lengths all;
    double n_errors, errors; /* relative errors of estimates; fading */
    struct tenant *tenants;
    void *shares; /* state of the policy `fair`: the tenants' service */
};

static int create(const struct sched_policy_options *options, void **state, struct quire_error *err)
{
    struct sjf *f = calloc(1, sizeof *f);
    if (f)
        f->tenants = calloc(options->n_tenants ? options->n_tenants : 1, sizeof *f->tenants);
    if (!f || !f->tenants) {
        free(f);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    f->ageing_us = options->ageing_us ? options->ageing_us : DEFAULT_AGEING_US;
    int status = sched_policy_fair.create(options, &f->shares, err);
    if (status) {
        free(f->tenants);
        free(f);
        return status;
    }
    *state = f;
    return QUIRE_OK;
}

static void destroy(void *state)
{
    struct sjf *f = state;
    if (!f)
        return;
    sched_policy_fair.destroy(f->shares);
    free(f->tenants);
    free(f);
}

/* ---- between tenants ---- */

static uint32_t n_flows(const void *state)
{
    return sched_policy_fair.n_flows(((const struct sjf *)state)->shares);
}

static uint32_t flow(const void *state, const struct sched_candidate *c)
{
    return sched_policy_fair.flow(((const struct sjf *)state)->shares, c);
}

static const uint64_t *flow_ranks(const void *state)
{
    return sched_policy_fair.flow_ranks(((const struct sjf *)state)->shares);
}

static void flow_begins(void *state, uint32_t tenant)
{
    sched_policy_fair.flow_begins(((struct sjf *)state)->shares, tenant);
}

static void flow_admits(void *state, uint32_t tenant)
{
    sched_policy_fair.flow_admits(((struct sjf *)state)->shares, tenant);
}

static const struct sched_flow_groups *flow_groups(const void *state)
{
    return sched_policy_fair.flow_groups(((const struct sjf *)state)->shares);
}

static bool flow_passes(const void *state, const struct sched_candidate *first, uint32_t tenant)
{
    return sched_policy_fair.flow_passes(((const struct sjf *)state)->shares, first, tenant);
}

static double flow_lead(const void *state, uint32_t tenant, uint32_t of)
{
    return sched_policy_fair.flow_lead(((const struct sjf *)state)->shares, tenant, of);
}

/* Between tenants only. */
static bool takes_seat(const void *state, const struct sched_candidate *waiting, const struct sched_candidate *running,
                       const struct sched_load *load)
{
    (void)load;
    return flow_lead(state, running->tenant, waiting->tenant) > SEAT_QUANTA;
}

static void use_cost(void *state, const struct sched_cost *cost)
{
    sched_policy_fair.use_cost(((struct sjf *)state)->shares, cost);
}

static void spent(void *state, uint32_t tenant, bool prompt, double us)
{
    sched_policy_fair.spent(((struct sjf *)state)->shares, tenant, prompt, us);
}

static void served(void *state, const struct sched_candidate *c, const struct sched_service *service)
{
    sched_policy_fair.served(((struct sjf *)state)->shares, c, service);
}

/* ---- estimates ---- */

/* floor(log2(n)), at most `most`; 0 for 0. */
static uint32_t octave(uint32_t n, uint32_t most)
{
    uint32_t i = n > 0 ? 31 - (uint32_t)__builtin_clz(n) : 0;
    return i < most ? i : most;
}

static struct lengths *by_prompt(const struct sjf *f, const struct sched_candidate *c)
{
    return &f->tenants[c->tenant].by_prompt[octave(c->n_prompt, PROMPT_OCTAVES - 1)];
}

/* More than `generated`, or 0 for unknown. */
static uint32_t look_up(const struct lengths *l, uint32_t generated)
{
    uint32_t i = octave(generated, OUTPUT_OCTAVES - 1);
    uint32_t expected = l->expected[i];
    if (expected <= generated && i + 1 < OUTPUT_OCTAVES)
        expected = l->expected[i + 1];
    return expected > generated ? expected : 0;
}

/* Expected total number of tokens after `generated` tokens. */
static uint32_t expect(const struct sjf *f, const struct sched_candidate *c, uint32_t generated)
{
    uint32_t expected = c->expected_tokens;
    if (expected <= generated)
        expected = look_up(by_prompt(f, c), generated);
    if (expected == 0)
        expected = look_up(&f->tenants[c->tenant].all, generated);
    if (expected == 0)
        expected = look_up(&f->all, generated);
    return expected > 0 && expected < c->max_tokens ? expected : c->max_tokens;
}

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    const struct sjf *f = state;
    uint32_t generated = c->n_known - c->n_prompt;
    uint32_t there = c->n_computed > c->n_cached ? c->n_computed : c->n_cached;
    uint64_t left = (uint64_t)(expect(f, c, generated) - generated) * PROMPT_PER_OUTPUT;
    left += c->n_known > there ? c->n_known - there : 0;
    uint64_t price = sched_later(0, left, f->ageing_us) / (1000 * PROMPT_PER_OUTPUT);
    return sched_later(c->arrival_us, 1, price);
}

/* ---- learning ---- */

/* A change below a sixteenth is noise and would only reorder the running sequences. */
static void publish(uint32_t *expected, double mean)
{
    if (mean > *expected + *expected / 16.0 || mean < *expected - *expected / 16.0)
        *expected = (uint32_t)(mean + 0.5);
}

/* The mean of those that reach 2^i is, with the part h of them that end before 2^(i+1):
 * h × mean of those in [2^i, 2^(i+1)) + (1 - h) × mean of those that reach 2^(i+1). Of those cut off in the octave, half
 * count as if they had been seen to its end. Where the last ones seen were all cut off, the rest is the next octave. */
static void estimate(struct lengths *l)
{
    double mean = 0, n_reached = 0;
    for (uint32_t i = OUTPUT_OCTAVES; i-- > 0;) {
        double n_ended = l->n[i], n_seen = n_reached + n_ended + l->n_cut[i] / 2;
        double h = n_seen > 0 ? n_ended / n_seen : 0;
        if (n_reached == 0)
            mean = 1.5 * (2u << i);
        mean = h > 0 ? h * l->sum[i] / n_ended + (1 - h) * mean : mean;
        n_reached += n_ended + l->n_cut[i];
        publish(&l->expected[i], n_reached >= LEAST ? mean : 0);
    }
}

static void learn(struct lengths *l, uint32_t length, bool cut)
{
    uint32_t at = octave(length, OUTPUT_OCTAVES - 1);
    for (uint32_t i = 0; i < OUTPUT_OCTAVES; i++) {
        l->n[i] *= 1 - 1.0 / MEMORY;
        l->sum[i] *= 1 - 1.0 / MEMORY;
        l->n_cut[i] *= 1 - 1.0 / MEMORY;
    }
    if (cut) {
        l->n_cut[at] += 1;
    } else {
        l->n[at] += 1;
        l->sum[at] += length;
    }
    estimate(l);
}

static void learn_all(struct sjf *f, const struct sched_candidate *c, uint32_t length, bool cut)
{
    learn(by_prompt(f, c), length, cut);
    learn(&f->tenants[c->tenant].all, length, cut);
    learn(&f->all, length, cut);
}

static void finished(void *state, const struct sched_candidate *c, uint32_t n_generated)
{
    struct sjf *f = state;
    if (n_generated == 0)
        return;
    double expected = expect(f, c, 0), error = (expected - n_generated) / n_generated;
    f->n_errors = f->n_errors * (1 - 1.0 / MEMORY) + 1;
    f->errors = f->errors * (1 - 1.0 / MEMORY) + (error < 0 ? -error : error);
    learn_all(f, c, n_generated, n_generated >= c->max_tokens);
}

static void cancelled(void *state, const struct sched_candidate *c, uint32_t n_generated)
{
    if (n_generated > 0)
        learn_all(state, c, n_generated, true);
}

static double figure(const void *state, const char **name)
{
    const struct sjf *f = state;
    *name = "estimate_error_percent";
    return f->n_errors > 0 ? 100 * f->errors / f->n_errors : 0;
}

const struct sched_policy sched_policy_sjf = {
    .name = "sjf",
    .about = "shortest expected completion first, estimated from finished requests; between tenants as fair",
    .ranks_running = true,
    .ranks_by_cache = true,
    .flows_are_tenants = true,
    .create = create,
    .destroy = destroy,
    .rank = rank,
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
    .served = served,
    .spent = spent,
    .finished = finished,
    .cancelled = cancelled,
    .figure = figure,
};
