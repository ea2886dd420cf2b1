/* memory/: tracks which KV block holds which content. It handles block ids, never bytes, so the same code plans a GPU's
 * memory on a laptop.
 *
 * A KV group is a set of layers with the same attention span: full attention, a sliding window, or a sliding window
 * and the first positions of the sequence (attention sinks). Each group has its
 * own pool of blocks, and each sequence has a block table per group. Full blocks that were computed may be published
 * under their hash and shared. A block without references stays findable until the pool reuses it: least recently used
 * first, the tail of a sequence before its head.
 *
 * Pure: no clock, thread, I/O or device. One thread at a time. The cache owns every block. A kv_table (kv_table.h) owns
 * references on blocks and must be destroyed before the cache.
 *
 * Invariants (kv_cache_check):
 *  1. In each group, every block is in exactly one state: referenced (count > 0), free and cached, or free and blank.
 *  2. A block's reference count is the number of table entries that name it.
 *  3. The free lists of a group hold exactly its unreferenced blocks: one list holds the blank blocks, which are taken
 *     first; the others hold the cached blocks, each in eviction order.
 *  4. The prefix index maps a hash to at most one block of a group, and that block carries that hash.
 *  5. Without tables, all blocks of all groups are free.
 *  6. A name is on the host tier at most once, and only while no device block of that group has it. The tier's list
 *     holds every used host block once, in order of arrival. */
#ifndef QUIRE_MEMORY_KV_CACHE_H
#define QUIRE_MEMORY_KV_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_MAX_GROUPS 4
#define KV_NO_BLOCK UINT32_MAX /* table entry between the sinks and the window: never read */

/* Selects the unreferenced cached block that is evicted first. */
enum kv_eviction {
    KV_EVICT_LRU, /* the least recently used */
    KV_EVICT_REUSE, /* least recently used, but each hit of a block's name, up to three, delays its eviction by half
                     * a pool of blocks taken: block_pool.h */
};

struct kv_config {
    uint32_t block_tokens; /* positions per block */
    uint32_t n_groups;
    bool prefix_caching;
    enum kv_eviction eviction;
    uint32_t n_tenants; /* owners of blocks, for counters; 0 means 1 */
    struct {
        uint32_t n_blocks;
        uint32_t n_host_blocks; /* second tier: evicted cached blocks move here, the oldest out; 0 disables it. Needs
                                 * prefix_caching. */
        uint32_t window; /* 0: full attention; otherwise positions that stay readable, including the token's own */
        uint32_t sinks; /* of a window: the first positions of a sequence, which stay readable too */
    } groups[KV_MAX_GROUPS];
};

/* A copy of one block between the device arena and the host arena, both of group `group`. */
struct kv_move {
    uint32_t group;
    uint32_t device_block, host_block;
    bool to_host;
};

struct kv_cache;

int kv_cache_create(const struct kv_config *config, struct kv_cache **out, struct quire_error *err);
void kv_cache_destroy(struct kv_cache *cache);

/* Returns how many leading blocks of `hashes` the groups with full attention hold on either tier. `hint` is the
 * previous result; the search starts there and takes two look-ups if nothing changed. It may miss a block that is gone
 * from the middle of a prefix. Takes no references. */
uint32_t kv_cache_peek(const struct kv_cache *cache, const struct key256 *hashes, uint32_t n_hashes, uint32_t hint);

/* Returns the copies recorded since the last kv_cache_clear_moves(). The caller makes them in this order, before
 * anything else reads or writes the blocks. Clearing declares that they were or will be made. There is space for two
 * copies, out and in, of each device block that has a tier. A step that takes no block twice needs no more. When the
 * space is full, no block moves to the host and no block is loaded. Valid until the next call that changes a table. */
const struct kv_move *kv_cache_moves(const struct kv_cache *cache, uint32_t *n_moves);
void kv_cache_clear_moves(struct kv_cache *cache);

struct kv_usage {
    uint32_t n_blocks, n_free, n_cached_free; /* n_cached_free is part of n_free */
    uint64_t n_evicted; /* cached blocks whose content is lost on every tier */
    uint32_t n_host_blocks, n_host_used;
    uint64_t n_spilled, n_loaded; /* copies to and from the host tier */
};
struct kv_usage kv_cache_usage(const struct kv_cache *cache, uint32_t group);
/* Returns n_evicted over all groups, counting only blocks that the tenant published. */
uint64_t kv_cache_evicted(const struct kv_cache *cache, uint32_t tenant);

/* Returns the maximum number of blocks of a group that one sequence of n_tokens positions holds at once, if a step
 * computes at most chunk positions. A request can be served only if this many blocks exist. */
uint32_t kv_blocks_needed(const struct kv_config *config, uint32_t group, uint32_t n_tokens, uint32_t chunk);

/* Drops every cached block without references, on both tiers. */
void kv_cache_drop_cached(struct kv_cache *cache);

/* Checks the invariants above. QUIRE_INTERNAL names the first broken one. O(blocks); allocates nothing. Debug
 * builds call it after every call that changes state. */
int kv_cache_check(const struct kv_cache *cache, struct quire_error *err);

#endif
