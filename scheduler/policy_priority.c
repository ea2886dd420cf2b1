/* The lower priority number first; first come, first served among equals. */
#include "scheduler/policies.h"

static int compare(const struct sched_candidate *a, const struct sched_candidate *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

const struct sched_policy sched_policy_priority = {.name = "priority", .compare = compare};
