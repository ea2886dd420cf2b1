/* The processes of a group: rank 0 starts the others as its children, of its own program, and watches them.
 *
 * When one of them ends by a signal or with a status that is not 0, the group is over: rank 0's next call and group_check() name it and say how it ended, the
 * others have a moment to end by themselves and are then killed. When rank 0 ends, however it does, the kernel kills them.
 * So no worker outlives its group, and none stays behind as a zombie.
 */
#ifndef QUIRE_PARALLEL_GROUP_H
#define QUIRE_PARALLEL_GROUP_H

#include "parallel/collective.h"

#include <stdbool.h>

struct group;

struct group_options {
    uint32_t n_ranks; /* 1 to 8, rank 0 among them */
    char *const *argv; /* of every worker, NULL-terminated; read by group_start() only */
    uint32_t timeout_ms; /* as collective_join_shared() has it, for all ranks */
};

/* Makes a group, joins it as rank 0 and starts ranks 1 .. n_ranks - 1, which need not have joined when it returns. The
 * caller must not reap children that it does not know. group_stop() ends it. */
int group_start(const struct group_options *options, struct group **out, struct quire_error *err);

/* Rank 0's; the group's, until group_stop(). */
struct collective *group_collective(struct group *g);

/* QUIRE_UNAVAILABLE: a worker has ended, by a signal or with a status that is not 0. Any thread. */
int group_check(struct group *g, struct quire_error *err);

/* Leaves, gives the workers a moment to end (one that waits for rank 0 gets an error), kills the others, and reaps all.
 * NULL is ignored. */
void group_stop(struct group *g);

/* ---- in a worker ---- */

/* Was this process started by group_start()? For main(), before it reads its arguments. */
bool group_is_worker(void);

/* The worker's place in its group, once per process; collective_leave() gives it back. */
int group_join(struct collective **out, struct quire_error *err);

#endif
