/* First come, first served. A later request is never first, so the waiting time is limited by the work that was there.
 */
#include "scheduler/policies/policies.h"

#include <stddef.h>

const struct sched_policy sched_policy_fcfs = {
    .name = "fcfs",
    .about = "first come, first served",
};
