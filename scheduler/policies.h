/* The policies there are. A new one is a file policy_NAME.c, which defines sched_policy_NAME with that
 * name, and a line here. */
#ifndef QUIRE_SCHEDULER_POLICIES_H
#define QUIRE_SCHEDULER_POLICIES_H

#include "scheduler/policy.h"

#define SCHED_POLICIES(P) \
    P(fcfs)               \
    P(priority)

#define SCHED_POLICY_DECLARE(name) extern const struct sched_policy sched_policy_##name;
SCHED_POLICIES(SCHED_POLICY_DECLARE)

#endif
