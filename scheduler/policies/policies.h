/* The list of policies. A new one is a file policies/NAME.c, which defines sched_policy_NAME, and a line here. */
#ifndef QUIRE_SCHEDULER_POLICIES_H
#define QUIRE_SCHEDULER_POLICIES_H

#include "scheduler/policy.h"

#define SCHED_POLICIES(P) \
    P(fcfs) \
    P(priority) \
    P(sjf) \
    P(edf) \
    P(fair) \
    P(lpm)

#define SCHED_POLICY_DECLARE(name) extern const struct sched_policy sched_policy_##name;
SCHED_POLICIES(SCHED_POLICY_DECLARE)

/* n × price after `at`, at most UINT64_MAX. */
static inline uint64_t sched_later(uint64_t at, uint64_t n, uint64_t price)
{
    uint64_t by, rank;
    if (__builtin_mul_overflow(n, price, &by) || __builtin_add_overflow(at, by, &rank))
        return UINT64_MAX;
    return rank;
}

#endif
