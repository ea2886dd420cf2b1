/* Where the time of each sequence goes, for people: no decision depends on it. One clock attributes the time between two
 * plans to the shortage of the head of the queue. A sequence keeps the sums of the time when it came, so its own part is
 * a difference, whatever the length of the queue. */
#ifndef QUIRE_SCHEDULER_STATE_WAITS_H
#define QUIRE_SCHEDULER_STATE_WAITS_H

#include "scheduler/types/account.h"

#include <stdint.h>

struct seq_waits {
    struct sched_account account;
    uint64_t short_before[SCHED_N_SHORTAGES]; /* the scheduler's sums when the sequence began to wait */
    uint64_t since_us; /* when it began to wait, last */
    uint64_t n_admissions_before; /* the scheduler's count when the sequence was submitted */
    uint32_t n_new_before; /* the same, including earlier choices of its request */
};

struct sched_waits {
    struct seq_waits *seqs; /* [names->n], owned */
    uint64_t now_us; /* of the last plan */
    enum sched_shortage shortage; /* why the head of the queue has waited since then */
    uint64_t short_us[SCHED_N_SHORTAGES]; /* sums */
    uint64_t n_admissions; /* first admissions, in all */
    uint32_t n_new; /* live sequences that were never admitted */
    uint32_t last_admitted_tenant;
    uint64_t last_admitted; /* request */
};

/* A sequence is submitted. n_new_before: live sequences that were never admitted, and earlier choices of its request. */
void waits_begin(struct sched_waits *w, uint32_t name, uint64_t arrival_us, uint32_t n_new_before);
/* A plan begins: attributes the time since the last one to the shortage that the head of the queue had then. */
void waits_pass_time(struct sched_waits *w, uint64_t now_us);

#endif
