/* A few threads for work on text that takes longer than the loop may wait: chat templates,
 * encoding.
 *
 * A job goes in on the loop's thread, its work() runs on one of the pool's threads, and its
 * done() on the loop's thread again. Only work() may run elsewhere than on the loop's thread.
 * Jobs begin in the order they came.
 */
#ifndef QUIRE_FRONT_TEXT_POOL_H
#define QUIRE_FRONT_TEXT_POOL_H

#include "base/status.h"

#include <event2/event.h>
#include <stdint.h>
#include <sys/queue.h>

struct text_pool;

struct text_job { /* the first member of what the owner knows of it */
    void (*work)(struct text_job *job);
    void (*done)(struct text_job *job);    /* the job is the owner's again */
    void (*release)(struct text_job *job); /* instead of done(), when it was cancelled: frees it */
    /* The pool's own. */
    int state;
    TAILQ_ENTRY(text_job) link;
};

int text_pool_open(struct event_base *base, uint32_t n_threads, struct text_pool **out, struct quire_error *err);
/* Waits for work() calls in progress; every job that is left is released. */
void text_pool_close(struct text_pool *pool);

void text_pool_submit(struct text_pool *pool, struct text_job *job);
/* The owner wants nothing more of a job whose done() has not been called; it is released now, or
 * when its work() has returned. */
void text_pool_cancel(struct text_pool *pool, struct text_job *job);

#endif
