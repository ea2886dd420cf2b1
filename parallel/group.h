/* The processes of a group: rank 0 starts the others as its children, with its own program, and watches them.
 *
 * If one of them ends by a signal or with a status other than 0, the group is over: rank 0's next call and
 * group_check() name it and how it ended. The others have a short time to end and are then killed. When rank 0 ends in
 * any way, the kernel kills them. No worker outlives its group, and none remains as a zombie.
 *
 * One thread starts and stops a group.
 */
#ifndef QUIRE_PARALLEL_GROUP_H
#define QUIRE_PARALLEL_GROUP_H

#include "parallel/collective.h"

#include <stdbool.h>

struct group;

struct group_options {
    uint32_t n_ranks; /* 1 to 8, including rank 0 */
    char *const *argv; /* of every worker, NULL-terminated; only read by group_start() */
    uint32_t timeout_ms; /* as in collective_join_shared(), for all ranks */
};

/* Creates a group, joins it as rank 0 and starts ranks 1 .. n_ranks - 1, which may join later. The caller must not reap
 * children that it does not know. group_stop() ends the group. */
int group_start(const struct group_options *options, struct group **out, struct quire_error *err);

/* Rank 0's collective. Owned by the group, valid until group_stop(). */
struct collective *group_collective(struct group *g);

/* QUIRE_UNAVAILABLE: a worker has ended, by a signal or with a status other than 0. Any thread. */
int group_check(struct group *g, struct quire_error *err);

/* Leaves the group, gives the workers a short time to end (one that waits for rank 0 gets an error), kills the others,
 * and reaps all. NULL is ignored. */
void group_stop(struct group *g);

/* ---- in a worker ---- */

/* Returns whether group_start() started this process. For main(), before it reads its arguments. */
bool group_is_worker(void);

/* Joins the worker to its group, once per process; collective_leave() ends the membership. */
int group_join(struct collective **out, struct quire_error *err);

#endif
