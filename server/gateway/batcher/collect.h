/* Collects requests that an upstream server takes as one. A batch is complete when it is full, or when its oldest
 * member has waited long enough. Pure: the caller provides the time, in milliseconds. One thread.
 */
#ifndef QUIRE_GATEWAY_COLLECT_H
#define QUIRE_GATEWAY_COLLECT_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define BATCH_MAX_SIZE 1024

struct batch {
    struct key256 key;
    uint64_t due_ms;
    uint32_t n, max_size;
    bool is_open; /* it is in the list of its collector */
    TAILQ_ENTRY(batch) link;
    void *members[]; /* [n], in the order in which they came; NULL: a member that left after the batch was complete */
};

/* Open batches. */
struct collector {
    TAILQ_HEAD(batch_list, batch) open;
};
void collector_init(struct collector *c);
/* Frees the open batches, not their members. */
void collector_free(struct collector *c);

struct batch_terms {
    uint32_t max_size; /* 1..BATCH_MAX_SIZE */
    uint32_t max_wait_ms;
};
/* Adds a member to the open batch with this key, or begins one. Returns NULL if memory is short. The batch is complete,
 * and no longer open, if it has max_size members. */
struct batch *collector_add(struct collector *c, const struct key256 *key, struct batch_terms terms, void *member,
                            uint64_t now_ms);
/* Removes a batch whose time is over. Returns NULL if no batch is due. It belongs to the caller, as a full one does:
 * free(). */
struct batch *collector_due(struct collector *c, uint64_t now_ms);
/* Returns the time at which the next batch is due, or 0 without an open batch. */
uint64_t collector_next_ms(const struct collector *c);
/* Drops a member. Returns the number of those that are left; an open batch without members is freed. */
uint32_t collector_leave(struct collector *c, struct batch *b, const void *member);

#endif
