#include "scheduler/counters.h"

#include "base/status.h"

#include <stdlib.h>

int counters_init(struct counters *c, uint32_t n, const uint32_t *weights)
{
    *c = (struct counters){.n = n};
    c->ranks = calloc(n, sizeof *c->ranks);
    c->steps = calloc(n, sizeof *c->steps);
    if (!c->ranks || !c->steps) {
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
    *c = (struct counters){0};
}

/* Runs long before the counters overflow: only their differences matter. */
static void start_over(struct counters *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        c->ranks[i] -= c->ranks[i] < c->now ? c->ranks[i] : c->now;
    c->now = 0;
}

void counters_begin(struct counters *c, uint32_t flow)
{
    uint64_t head_start = counters_cost(c, flow, COUNTERS_HEAD_START);
    uint64_t least = c->now > head_start ? c->now - head_start : 0;
    if (c->ranks[flow] < least)
        c->ranks[flow] = least;
}

void counters_admit(struct counters *c, uint32_t flow)
{
    if (c->ranks[flow] > COUNTERS_FULL)
        start_over(c);
    if (c->now < c->ranks[flow])
        c->now = c->ranks[flow];
}
