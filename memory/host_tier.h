/* What becomes of a named block's content when the device pool gives it up: it moves to a block of
 * host memory, or is lost and perhaps remembered.
 *
 *                       device pool
 *     give_up() |            ^ load             | give_up(), no host block
 *               v            |                  v to be had
 *            host blocks, oldest out  ------> lost ------> history (KV_EVICT_REUSE): a name and
 *                                                          its uses, without content
 *
 * A name is in one of these places only; take_back() removes it from the lower ones when it is
 * computed anew. Copies are recorded as moves, and made by others in the order they were recorded,
 * before the step that was planned with them.
 *
 * That order is enough. What a move reads was put into the block by a step that is over (a block is
 * named when its step is committed) or by a move recorded earlier. The block is free for other
 * content only from the call on that records this move, give_up() or load(), or from one that ends
 * its name without a move, and then nobody reads it. So whatever writes over it is a move recorded
 * later, or the step. Hence a host block is spare the moment its load is recorded, and a block may
 * go out, in and out again in one step.
 *
 * O(1) expected; nothing is allocated after creation. One thread at a time.
 */
#ifndef QUIRE_MEMORY_HOST_TIER_H
#define QUIRE_MEMORY_HOST_TIER_H

#include "memory/kv_cache.h"
#include "memory/name_queue.h"

/* Of all groups; owned by the cache. */
struct kv_ledger {
    struct kv_move *moves;
    uint32_t n_moves, capacity;
    uint64_t *n_evicted; /* [n_tenants] names whose content was lost */
};

struct host_tier {
    struct name_queue blocks;  /* a slot is a host block */
    struct name_queue history; /* of names that are lost; no slots but for KV_EVICT_REUSE */
    struct kv_ledger *ledger;  /* borrowed from the cache */
    uint32_t group;
    uint64_t n_lost, n_spilled, n_loaded;
};

int host_tier_init(struct host_tier *tier, uint32_t group, uint32_t n_host_blocks, uint32_t n_history,
                   struct kv_ledger *ledger);
void host_tier_free(struct host_tier *tier);

/* A device block's content is given up: it moves to the host, or is lost. */
void host_tier_give_up(struct host_tier *tier, uint32_t device_block, const struct key256 *name, struct kv_label label);
/* A name is being published on the device: a host copy and what is remembered go. Returns its uses
 * so far, 0 for a name that nobody remembers. */
uint32_t host_tier_take_back(struct host_tier *tier, const struct key256 *name);

/* Records the copy of a detached host block into a device block; the host block is spare again. */
void host_tier_load(struct host_tier *tier, uint32_t host_block, uint32_t device_block);

/* A name's content is gone on every tier, and counted; only the history may remember it. */
void host_tier_lose(struct host_tier *tier, const struct key256 *name, struct kv_label label);
/* Loses everything on the host, and forgets the history. */
void host_tier_drop(struct host_tier *tier);

/* Invariant 6 of kv_cache.h, as far as it can be seen from here. */
int host_tier_check(const struct host_tier *tier, struct quire_error *err);

#endif
