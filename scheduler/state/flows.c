#include "scheduler/state/flows.h"

#include <stdlib.h>

int flows_create(const struct sched_policy *policy, const struct sched_policy_options *options,
                 const struct sched_cost *cost, bool capped, const struct sequence *seqs, uint32_t n_names,
                 struct sched_flows **out, struct quire_error *err)
{
    struct sched_flows *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    f->policy = policy;
    int status = policy->create ? policy->create(options, &f->state, err) : QUIRE_OK;
    if (status) {
        free(f);
        return status;
    }
    if (cost && policy->use_cost)
        policy->use_cost(f->state, cost);
    uint32_t n = policy->n_flows ? policy->n_flows(f->state) : 1;
    uint32_t n_lanes = capped && !policy->flows_are_tenants ? options->n_tenants : 1;
    f->live = calloc(n + 1, sizeof *f->live);
    f->order = calloc(n + 1, sizeof *f->order);
    f->at = calloc(n + 1, sizeof *f->at);
    f->times = calloc(n + 1, sizeof *f->times);
    f->runs = calloc(n + 1, sizeof *f->runs);
    f->ahead = calloc(n + 1, sizeof *f->ahead);
    if (!f->live || !f->order || !f->at || !f->times || !f->runs || !f->ahead ||
        queue_init(&f->queue, n, n_lanes, seqs, n_names, policy, f->state)) {
        flows_destroy(f);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    for (uint32_t i = 0; i <= n; i++)
        f->order[i] = i;
    *out = f;
    return QUIRE_OK;
}

void flows_destroy(struct sched_flows *f)
{
    if (!f)
        return;
    queue_free(&f->queue);
    free(f->live);
    free(f->order);
    free(f->at);
    free(f->times);
    free(f->runs);
    free(f->ahead);
    if (f->policy->destroy)
        f->policy->destroy(f->state);
    free(f);
}
