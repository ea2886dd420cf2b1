/* First come, first served. */
#include "scheduler/policies.h"

static int compare(const struct sched_candidate *a, const struct sched_candidate *b)
{
    return (a->order > b->order) - (a->order < b->order);
}

const struct sched_policy sched_policy_fcfs = {.name = "fcfs", .compare = compare};
