#include "scheduler/state/caps.h"

#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>

int caps_create(const struct sched_policy_options *options, struct sched_caps **out, struct quire_error *err)
{
    const struct sched_tenant *t = options->tenants;
    uint32_t n = options->n_tenants;
    bool any = false;
    *out = NULL;
    for (uint32_t i = 0; t && i < n; i++)
        any |= t[i].max_seats > 0 || t[i].max_kv_blocks > 0;
    if (!any)
        return QUIRE_OK;
    struct sched_caps *caps = calloc(1, sizeof *caps + n * sizeof caps->tenants[0]);
    if (!caps)
        return quire_fail(err, QUIRE_NO_MEMORY, "limits of tenants: out of memory");
    caps->n = n;
    for (uint32_t i = 0; i < n; i++)
        caps->tenants[i] = (struct sched_cap){.max_seats = t[i].max_seats, .max_blocks = t[i].max_kv_blocks};
    *out = caps;
    return QUIRE_OK;
}

uint32_t caps_blocks(const struct kv_config *kv, uint32_t n_positions, uint32_t reach)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t n = kv_blocks_needed(kv, g, n_positions, reach);
        most = n > most ? n : most;
    }
    return most;
}

static uint32_t blocks_of(const struct sched *s, const struct sequence *q)
{
    return caps_blocks(&s->config->kv, q->n_positions, sched_reach(s));
}

bool caps_allow(const struct sched *s, const struct sequence *q)
{
    if (!s->caps || q->key.background)
        return true;
    const struct sched_cap *cap = &s->caps->tenants[q->key.tenant];
    if (cap->max_seats > 0 && cap->n_seats >= cap->max_seats)
        return false;
    return cap->max_blocks == 0 || cap->n_blocks + blocks_of(s, q) <= cap->max_blocks;
}

void caps_starts(struct sched *s, const struct sequence *q)
{
    if (!s->caps || q->key.background)
        return;
    s->caps->tenants[q->key.tenant].n_seats++;
    s->caps->tenants[q->key.tenant].n_blocks += blocks_of(s, q);
}

void caps_stops(struct sched *s, const struct sequence *q)
{
    if (!s->caps || q->key.background)
        return;
    s->caps->tenants[q->key.tenant].n_seats--;
    s->caps->tenants[q->key.tenant].n_blocks -= blocks_of(s, q);
}
