#include "scheduler/policy.h"

#include "scheduler/policies.h"

#include <stddef.h>
#include <string.h>

static const struct sched_policy *const policies[] = {
    &sched_policy_fcfs,
    &sched_policy_priority,
};
#define N_POLICIES (sizeof policies / sizeof policies[0])

const struct sched_policy *sched_policy_at(uint32_t i)
{
    return i < N_POLICIES ? policies[i] : NULL;
}

const struct sched_policy *sched_policy_find(const char *name)
{
    for (size_t i = 0; i < N_POLICIES; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

const char *sched_policy_names(void)
{
    return "fcfs, priority";
}
