/* A bounded queue of names of blocks that are not on the device: the oldest leaves first, and any
 * may leave early. The host tier is one (a slot is a host block), and so is what KV_EVICT_REUSE
 * remembers of names whose content is gone.
 *
 *               push                    remove
 *        spare ------> queued, findable ------> spare
 *                                       detach                 spare
 *                      queued, findable ------> held, nameless ------> spare
 *
 * The queue owns its arrays; nothing is allocated after creation and every operation is O(1)
 * expected. A queue of no slots is fine: it finds nothing and is always full. One thread at a time.
 */
#ifndef QUIRE_MEMORY_NAME_QUEUE_H
#define QUIRE_MEMORY_NAME_QUEUE_H

#include "base/hash.h"
#include "base/status.h"
#include "memory/prefix_index.h"

#include <stdbool.h>
#include <stdint.h>

/* What goes with a name wherever it lives. */
#define KV_MOST_USES 4u
#define KV_MAX_TENANTS (1u << 28)
struct kv_label {
    uint32_t owner : 28; /* the tenant that published it */
    uint32_t uses : 4;   /* computed once, and each hit: 1 to KV_MOST_USES */
};

struct queue_slot {
    uint32_t prev, next; /* in the queue, oldest first; `next` also among the spare */
    struct kv_label label;
};

struct name_queue {
    struct queue_slot *slots;
    struct prefix_index names;
    uint32_t n_slots, n_queued;
    uint32_t oldest, newest; /* KV_NO_BLOCK: none */
    uint32_t spare;          /* the slot to be used next; KV_NO_BLOCK: none */
};

int name_queue_init(struct name_queue *q, uint32_t n_slots);
void name_queue_free(struct name_queue *q);

/* The slot of that name, or KV_NO_BLOCK. */
uint32_t name_queue_find(const struct name_queue *q, const struct key256 *name);
/* Puts a name that is not in the queue behind all others, into the spare slot, which must exist. */
uint32_t name_queue_push(struct name_queue *q, const struct key256 *name, struct kv_label label);
/* Takes a slot out of the queue and its name away; name_queue_spare() makes it usable again. */
void name_queue_detach(struct name_queue *q, uint32_t slot);
void name_queue_spare(struct name_queue *q, uint32_t slot);
/* Both. */
void name_queue_remove(struct name_queue *q, uint32_t slot);

/* Are list, index and counts one, and is every slot queued or spare? QUIRE_INTERNAL says what is
 * not, as invariant 6 of group `group`. */
int name_queue_check(const struct name_queue *q, const char *what, uint32_t group, struct quire_error *err);

#endif
