/* A few threads for work on text that takes longer than the loop may wait: chat templates, encoding.
 *
 * The loop's thread submits a job. Its work() runs on one of the pool's threads, a slice at a time, and its done() on
 * the loop's thread again. Only work() may run on another thread than the loop's.
 *
 * Tenants take turns: each slice belongs to the next tenant that has work. Within a tenant, fresh and begun jobs take
 * turns, each in the order of waiting. One thread is reserved for short jobs, because slices of longer ones are not
 * all as short as they should be (an indivisible piece, a large template). So a short job waits for no more slices
 * than there are tenants before it and short jobs of its own tenant.
 *
 * Begun jobs hold memory. At most two jobs of a tenant, and sixteen of all tenants, have begun among those above
 * TEXT_SHORT_BYTES. At most one has begun among those above TEXT_MEDIUM_BYTES.
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

struct text_job;

/* The functions of one kind of job. Static. */
struct text_job_calls {
    /* Works for some milliseconds; true: another call is needed. */
    bool (*work)(struct text_job *job);
    void (*done)(struct text_job *job);    /* the job belongs to the owner again */
    void (*release)(struct text_job *job); /* frees the job; called instead of done() after a cancellation */
};

struct text_job { /* the first member of the owner's struct */
    const struct text_job_calls *calls;
    uint32_t tenant;                       /* whose turns it uses: an index below TENANTS_MAX */
    size_t n_bytes;                        /* size of its input */
    /* Set by work() where the input is found to be larger: the job ends its turn, waits like a fresh job of this size,
     * and n_bytes becomes this. Until then it must hold no more than before. */
    size_t needs_bytes;
    /* Private to the pool. */
    int state;
    bool is_begun;
    uint64_t number; /* orders jobs in their list */
    TAILQ_ENTRY(text_job) link;
};

int text_pool_open(struct event_base *base, uint32_t n_threads, struct text_pool **out, struct quire_error *err);
/* For slices that are not short: a tenant without a running slice comes before the others. Call it before the first
 * submission. */
void text_pool_prefer_idle(struct text_pool *pool);
/* Waits for slices in progress; releases every remaining job. */
void text_pool_close(struct text_pool *pool);

void text_pool_submit(struct text_pool *pool, struct text_job *job);
/* Cancels a job whose done() has not been called. It is released now, or when its slice is over. */
void text_pool_cancel(struct text_pool *pool, struct text_job *job);

#endif
