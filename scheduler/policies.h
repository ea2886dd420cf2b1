/* The policies there are. A new one is a file policy_NAME.c, a line here and a line in policy.c. */
#ifndef QUIRE_SCHEDULER_POLICIES_H
#define QUIRE_SCHEDULER_POLICIES_H

#include "scheduler/policy.h"

extern const struct sched_policy sched_policy_fcfs;
extern const struct sched_policy sched_policy_priority;

#endif
