#include "scheduler/counters.h"

#include "base/status.h"

#include <stdlib.h>

int counters_init(struct counters *c, uint32_t n, const uint32_t *weights)
{
    *c = (struct counters){.n = n};
    c->ranks = calloc(n, sizeof *c->ranks);
    c->steps = calloc(n, sizeof *c->steps);
    c->active = calloc(n, sizeof *c->active);
    c->places = calloc(n, sizeof *c->places);
    if (!c->ranks || !c->steps || !c->active || !c->places) {
        counters_free(c);
        return QUIRE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t weight = weights ? weights[i] : 1;
        c->steps[i] = (COUNTERS_SCALE + weight / 2) / weight;
    }
    return QUIRE_OK;
}

void counters_free(struct counters *c)
{
    free(c->ranks);
    free(c->steps);
    free(c->active);
    free(c->places);
    *c = (struct counters){0};
}

/* Where a flow that was away begins. */
static uint64_t floor_of(const struct counters *c)
{
    if (c->n_active == 0)
        return c->ranks[c->last];
    uint64_t least = c->ranks[c->active[0]];
    for (uint32_t i = 1; i < c->n_active; i++)
        if (c->ranks[c->active[i]] < least)
            least = c->ranks[c->active[i]];
    return least;
}

void counters_begin(struct counters *c, uint32_t flow)
{
    uint64_t least = floor_of(c);
    if (c->ranks[flow] < least)
        c->ranks[flow] = least;
    c->places[flow] = c->n_active;
    c->active[c->n_active++] = flow;
}

void counters_end(struct counters *c, uint32_t flow)
{
    uint32_t last = c->active[--c->n_active];
    c->active[c->places[flow]] = last;
    c->places[last] = c->places[flow];
    c->last = flow;
}
