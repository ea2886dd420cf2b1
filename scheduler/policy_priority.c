/* The lower priority number first; first come, first served among equals. */
#include "scheduler/policies.h"

#include <stddef.h>

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    (void)state;
    return (uint64_t)((int64_t)c->priority - INT32_MIN);
}

const struct sched_policy sched_policy_priority = {
    .name = "priority",
    .about = "the lower \"priority\" of the request first",
    .rank = rank,
};
