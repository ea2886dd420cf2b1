#include "scheduler/policies/counters.h"

#include "base/status.h"

#include <stdlib.h>

int counters_init(struct counters *c, uint32_t n, const uint32_t *weights, const uint32_t *sets, uint64_t head_start)
{
    *c = (struct counters){.n = n, .head_start = head_start};
    c->ranks = calloc(n, sizeof *c->ranks);
    c->steps = calloc(n, sizeof *c->steps);
    c->sets = calloc(n, sizeof *c->sets);
    c->now = calloc(n, sizeof *c->now);
    if (!c->ranks || !c->steps || !c->sets || !c->now) {
        counters_free(c);
        return QUIRE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t weight = weights ? weights[i] : 1;
        c->steps[i] = (COUNTERS_SCALE + weight / 2) / weight;
        c->sets[i] = sets ? sets[i] : 0;
    }
    return QUIRE_OK;
}

void counters_free(struct counters *c)
{
    free(c->ranks);
    free(c->steps);
    free(c->sets);
    free(c->now);
    *c = (struct counters){0};
}

/* Runs long before the counters overflow: only their differences matter. */
static void start_over(struct counters *c, uint32_t set)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->sets[i] == set)
            c->ranks[i] -= c->ranks[i] < c->now[set] ? c->ranks[i] : c->now[set];
    c->now[set] = 0;
}

/* As doubles: a lead is rounded to 53 bits, and no order is reversed. */
static uint64_t converted(uint64_t lead, double factor)
{
    double units = (double)lead * factor;
    return units < (double)COUNTERS_FULL ? (uint64_t)units : COUNTERS_FULL;
}

static void convert_set(struct counters *c, uint32_t set, double factor)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->sets[i] == set && c->ranks[i] < least)
            least = c->ranks[i];
    for (uint32_t i = 0; i < c->n; i++)
        if (c->sets[i] == set)
            c->ranks[i] = converted(c->ranks[i] - least, factor);
    c->now[set] = c->now[set] > least ? converted(c->now[set] - least, factor) : 0;
}

void counters_convert(struct counters *c, double factor)
{
    for (uint32_t set = 0; set < c->n; set++)
        convert_set(c, set, factor);
}

void counters_begin(struct counters *c, uint32_t flow)
{
    uint64_t head_start = counters_cost(c, flow, c->head_start), now = c->now[c->sets[flow]];
    uint64_t least = now > head_start ? now - head_start : 0;
    if (c->ranks[flow] < least)
        c->ranks[flow] = least;
}

void counters_admit(struct counters *c, uint32_t flow)
{
    uint32_t set = c->sets[flow];
    if (c->ranks[flow] > COUNTERS_FULL)
        start_over(c, set);
    if (c->now[set] < c->ranks[flow])
        c->now[set] = c->ranks[flow];
}
