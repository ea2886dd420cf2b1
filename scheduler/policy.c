#include "scheduler/policy.h"

#include "scheduler/policies.h"

#include <stddef.h>
#include <string.h>

static const struct sched_policy *const policies[] = {
    &sched_policy_fcfs,
    &sched_policy_priority,
};

const struct sched_policy *sched_policy_find(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

const char *sched_policy_names(void)
{
    return "fcfs, priority";
}
