/* A few threads for work on text that takes longer than the loop may wait: chat templates,
 * encoding.
 *
 * A job goes in on the loop's thread, its work() runs on one of the pool's threads, a slice at a time, and its
 * done() on the loop's thread again. Only work() may run elsewhere than on the loop's thread.
 *
 * Tenants have turns: each slice is the next tenant's that has something to do. Within a tenant what is new and what
 * has begun take turns, each in the order of waiting. One thread is left to short jobs: slices of longer ones are not
 * all as short as they should be (an uncuttable piece, a large template). So a short job waits for no more slices than
 * there are tenants before it and short jobs of its own tenant.
 *
 * What has begun holds memory: of jobs of more than TEXT_SHORT_BYTES a tenant has two and all together have sixteen
 * that have begun, and of those of more than TEXT_MEDIUM_BYTES there is one.
 */
#ifndef QUIRE_FRONT_TEXT_POOL_H
#define QUIRE_FRONT_TEXT_POOL_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define TEXT_SHORT_BYTES ((size_t)16 << 10)
#define TEXT_MEDIUM_BYTES ((size_t)512 << 10)

struct text_pool;

struct text_job { /* the first member of what the owner knows of it */
    /* Works for some milliseconds; true: there is more to do, in another call. */
    bool (*work)(struct text_job *job);
    void (*done)(struct text_job *job);    /* the job is the owner's again */
    void (*release)(struct text_job *job); /* instead of done(), when it was cancelled: frees it */
    uint32_t tenant;                       /* whose turns it takes: an index below TENANTS_MAX */
    size_t n_bytes;                        /* of what it works on */
    /* The pool's own. */
    int state;
    bool is_begun;
    uint64_t number; /* of its place in its list */
    TAILQ_ENTRY(text_job) link;
};

int text_pool_open(struct event_base *base, uint32_t n_threads, struct text_pool **out, struct quire_error *err);
/* Waits for slices in progress; every job that is left is released. */
void text_pool_close(struct text_pool *pool);

void text_pool_submit(struct text_pool *pool, struct text_job *job);
/* The owner wants nothing more of a job whose done() has not been called; it is released now, or
 * when its slice is over. */
void text_pool_cancel(struct text_pool *pool, struct text_job *job);

#endif
