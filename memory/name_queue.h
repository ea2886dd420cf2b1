/* A bounded queue of names of blocks that are not on the device. The oldest leaves first, and any name may leave early.
 * The host tier uses one, in which a slot is a host block. KV_EVICT_REUSE uses another for names whose content is lost.
 *
 *               push                    remove
 *        spare ------> queued, findable ------> spare
 *                                       detach                 spare
 *                      queued, findable ------> held, nameless ------> spare
 *
 * The queue owns its arrays. Nothing is allocated after creation, and every operation takes O(1) expected time. A queue
 * without slots is allowed: it finds nothing and is always full. One thread at a time.
 */
#ifndef QUIRE_MEMORY_NAME_QUEUE_H
#define QUIRE_MEMORY_NAME_QUEUE_H

#include "base/hash.h"
#include "base/status.h"
#include "memory/prefix_index.h"

#include <stdbool.h>
#include <stdint.h>

/* The data that accompanies a name on every tier. */
#define KV_MOST_USES 4u
#define KV_MAX_TENANTS (1u << 28)
struct kv_label {
    uint32_t owner : 28; /* the tenant that published it */
    uint32_t uses : 4; /* 1 when computed, plus 1 for each hit, up to KV_MOST_USES */
};

struct queue_slot {
    uint32_t prev, next; /* in the queue, oldest first; `next` also links the spare slots */
    struct kv_label label;
};

struct name_queue {
    struct queue_slot *slots;
    struct prefix_index names;
    uint32_t n_slots, n_queued;
    uint32_t oldest, newest; /* KV_NO_BLOCK if the queue is empty */
    uint32_t spare; /* the slot to use next, or KV_NO_BLOCK */
};

int name_queue_init(struct name_queue *q, uint32_t n_slots);
void name_queue_free(struct name_queue *q);

/* Returns the slot with that name, or KV_NO_BLOCK. */
uint32_t name_queue_find(const struct name_queue *q, const struct key256 *name);
/* Appends a name that is not in the queue. It occupies the spare slot, which must exist. */
uint32_t name_queue_push(struct name_queue *q, const struct key256 *name, struct kv_label label);
/* Removes a slot from the queue and removes its name. name_queue_spare() makes the slot usable again. */
void name_queue_detach(struct name_queue *q, uint32_t slot);
void name_queue_spare(struct name_queue *q, uint32_t slot);
/* Detaches a slot and makes it spare. */
void name_queue_remove(struct name_queue *q, uint32_t slot);

/* Checks that list, index and counts agree and that every slot is queued or spare. QUIRE_INTERNAL names the fault, as
 * invariant 6 of group `group`. */
int name_queue_check(const struct name_queue *q, const char *what, uint32_t group, struct quire_error *err);

#endif
