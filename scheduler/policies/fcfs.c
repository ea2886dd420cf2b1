/* First come, first served. Nothing submitted later goes before: waiting is bounded by the work that was
 * there. */
#include "scheduler/policies/policies.h"

#include <stddef.h>

const struct sched_policy sched_policy_fcfs = {
    .name = "fcfs",
    .about = "first come, first served",
};
