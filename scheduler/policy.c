#include "scheduler/policy.h"

#include "scheduler/policies/policies.h"

#include <stddef.h>
#include <string.h>

#define POINTER(name) &sched_policy_##name,
static const struct sched_policy *const policies[] = {SCHED_POLICIES(POINTER)};
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
#define LISTED(name) ", " #name
    static const char names[] = SCHED_POLICIES(LISTED);
    return names + 2;
}
