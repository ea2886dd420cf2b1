/* The check after each public call that changes state, in debug builds. Private to this folder. */
#ifndef QUIRE_SCHEDULER_STATE_CHECKED_H
#define QUIRE_SCHEDULER_STATE_CHECKED_H

struct sched;

/* In a scheduler of more than 1,024 names and blocks, only some of the calls check, so that the mean cost of a call stays
 * the same. */
#ifdef QUIRE_DEBUG
void sched_checked(struct sched *s, const char *function);
#define SCHED_CHECKED(s) sched_checked(s, __func__)
#else
#define SCHED_CHECKED(s) ((void)(s))
#endif

#endif
