/* Blocking work on files and SQLite for the loop: two threads, one for short work and one for long work, so that a reply
 * never waits for a batch's results to be written. Loop's thread, except for `work`.
 */
#ifndef QUIRE_BULK_DISK_H
#define QUIRE_BULK_DISK_H

#include "base/status.h"

#include <event2/event.h>

struct bulk_disk;

enum bulk_lane {
    BULK_SHORT, /* milliseconds; the only lane that uses the store */
    BULK_LONG, /* seconds */
    BULK_N_LANES,
};

/* Part of a larger struct. The work of a lane runs in order. */
struct bulk_job {
    void (*work)(struct bulk_job *job); /* on a thread */
    void (*done)(struct bulk_job *job); /* on the loop; owns the job again */
    struct bulk_job *next; /* private */
};

int bulk_disk_open(struct event_base *base, struct bulk_disk **out, struct quire_error *err);
/* Does all work that is queued, and calls each `done`, which may queue more. NULL is allowed. */
void bulk_disk_close(struct bulk_disk *d);
void bulk_disk_do(struct bulk_disk *d, enum bulk_lane lane, struct bulk_job *job);
/* Waits until all work is done, and calls each `done`. */
void bulk_disk_settle(struct bulk_disk *d);

#endif
