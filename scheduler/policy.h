/* Who goes first. A policy is a table of pure functions; one file each, policy_NAME.c. */
#ifndef QUIRE_SCHEDULER_POLICY_H
#define QUIRE_SCHEDULER_POLICY_H

#include <stdint.h>

/* What a policy may know of a sequence. */
struct sched_candidate {
    uint64_t order;       /* submission order, unique */
    int32_t priority;
    uint64_t arrival_us;
    uint64_t deadline_us;
    uint32_t tenant;
    uint32_t n_known;     /* tokens to be computed in all */
    uint32_t n_computed;
};

struct sched_policy {
    const char *name;
    /* < 0: a goes before b. Total: `order` breaks every tie. Waiting sequences are admitted, and
     * running ones served, first to last; the last of the running is preempted first. */
    int (*compare)(const struct sched_candidate *a, const struct sched_candidate *b);
};

/* "fcfs", "priority". NULL when there is none of that name. */
const struct sched_policy *sched_policy_find(const char *name);
/* The names, comma separated, for messages. */
const char *sched_policy_names(void);

#endif
