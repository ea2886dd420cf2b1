/* What happens to the content of a named block when the device pool evicts it: it moves to a block of host memory, or
 * it is lost and the history may remember its name.
 *
 *                       device pool
 *     give_up() |            ^ load             | give_up(), no host block
 *               v            |                  v available
 *            host blocks, oldest out  ------> lost ------> history (KV_EVICT_REUSE): a name and
 *                                                          its uses, without content
 *
 * A name is in only one of these places. When a name is computed again, take_back() removes it from the lower places.
 * The tier records copies as moves. The caller of the cache makes them in the recorded order, before the step that was
 * planned with them.
 *
 * That order is sufficient. The content that a move reads was written by a finished step (a block gets its name when
 * its step is committed) or by a move recorded earlier. The block becomes free for other content only with the call
 * that records this move, give_up() or load(), or with a call that ends its name without a move; after that no move
 * reads the block. So only a move recorded later, or the step itself, overwrites it. Hence a host block is spare as
 * soon as its load is recorded, and a block may move out, in and out again in one step.
 *
 * Every operation takes O(1) expected time. Nothing is allocated after creation. One thread at a time.
 */
#ifndef QUIRE_MEMORY_HOST_TIER_H
#define QUIRE_MEMORY_HOST_TIER_H

#include "memory/kv_cache.h"
#include "memory/name_queue.h"

/* The recorded moves and the eviction counts of all groups. Owned by the cache. */
struct kv_ledger {
    struct kv_move *moves;
    uint32_t n_moves, capacity;
    uint64_t *n_evicted; /* [n_tenants] names whose content was lost */
};

struct host_tier {
    struct name_queue blocks;  /* a slot is a host block */
    struct name_queue history; /* lost names; has slots only with KV_EVICT_REUSE */
    struct kv_ledger *ledger;  /* borrowed from the cache */
    uint32_t group;
    uint64_t n_lost, n_spilled, n_loaded;
};

/* Returns NULL if memory is short. */
struct host_tier *host_tier_create(uint32_t group, uint32_t n_host_blocks, uint32_t n_history,
                                   struct kv_ledger *ledger);
void host_tier_destroy(struct host_tier *tier); /* NULL is allowed */

/* Evicts a device block's content: moves it to the host, or loses it. */
void host_tier_give_up(struct host_tier *tier, uint32_t device_block, const struct key256 *name, struct kv_label label);
/* Called when a name is published on the device. Removes its host copy and its entry in the history. Returns its uses
 * so far, or 0 if the name is unknown. */
uint32_t host_tier_take_back(struct host_tier *tier, const struct key256 *name);

/* Records the copy of a detached host block into a device block. The host block is spare afterwards. */
void host_tier_load(struct host_tier *tier, uint32_t host_block, uint32_t device_block);

/* Counts a name whose content is gone on every tier. Only the history may remember the name. */
void host_tier_lose(struct host_tier *tier, const struct key256 *name, struct kv_label label);
/* Loses all content on the host and clears the history. */
void host_tier_drop(struct host_tier *tier);

/* Checks the parts of invariant 6 of kv_cache.h that concern the tier. */
int host_tier_check(const struct host_tier *tier, struct quire_error *err);

#endif
