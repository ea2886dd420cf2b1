/* memory/: tracks which KV block holds which content. It handles block ids, never bytes, so the same code plans a GPU's
 * memory on a laptop.
 *
 * A KV group is a set of layers with the same attention span: full attention or a sliding window. Each group has its
 * own pool of blocks, and each sequence has a block table per group. Full blocks that were computed may be published
 * under their hash and shared. A block without references stays findable until the pool reuses it: least recently used
 * first, the tail of a sequence before its head.
 *
 * Pure: no clock, thread, I/O or device. One thread at a time. The cache owns every block. A kv_table owns references
 * on blocks and must be destroyed before the cache.
 *
 * Invariants (kv_cache_check):
 *  1. In each group, every block is in exactly one state: referenced (count > 0), free and cached, or free and blank.
 *  2. A block's reference count is the number of table entries that name it.
 *  3. The free lists of a group hold exactly its unreferenced blocks: one list holds the blank blocks, which are taken
 *     first; the others hold the cached blocks, each in eviction order.
 *  4. The prefix index maps a hash to at most one block of a group, and that block carries that hash.
 *  5. Without tables, all blocks of all groups are free.
 *  6. A name is on the host tier at most once, and only while no device block of that group has it. The tier's list
 *     holds every used host block once, in order of arrival.
 */
#ifndef QUIRE_MEMORY_KV_CACHE_H
#define QUIRE_MEMORY_KV_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_MAX_GROUPS 4
#define KV_NO_BLOCK UINT32_MAX /* table entry behind a window: never read */

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
    } groups[KV_MAX_GROUPS];
};

/* A copy of one block between the device arena and the host arena, both of group `group`. */
struct kv_move {
    uint32_t group;
    uint32_t device_block, host_block;
    bool to_host;
};

struct kv_cache;
struct kv_table; /* one sequence's block tables */

int kv_cache_create(const struct kv_config *config, struct kv_cache **out, struct quire_error *err);
void kv_cache_destroy(struct kv_cache *cache);

int kv_table_create(struct kv_cache *cache, struct kv_table **out, struct quire_error *err);
/* Drops every reference, tail first, and frees the table. NULL is allowed. */
void kv_table_destroy(struct kv_table *table);

/* Allocates entries for n_tokens positions, so later calls on this table allocate nothing while it stays within them.
 * Takes no block. QUIRE_NO_MEMORY leaves the table unchanged. */
int kv_table_prepare(struct kv_table *table, uint32_t n_tokens);

/* Takes references on the longest prefix that every group still holds: whole blocks only, at most max_tokens positions.
 * The table must be empty. Returns the number of positions covered. A windowed group needs only the blocks that the
 * next position can read; entries before them are KV_NO_BLOCK. */
uint32_t kv_table_match(struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes, uint32_t max_tokens);

/* Returns how many leading blocks of `hashes` the groups with full attention hold on either tier. `hint` is the
 * previous result; the search starts there and takes two look-ups if nothing changed. It may miss a block that is gone
 * from the middle of a prefix. Takes no references. */
uint32_t kv_cache_peek(const struct kv_cache *cache, const struct key256 *hashes, uint32_t n_hashes, uint32_t hint);

/* Returns how many positions kv_table_load can add to a table that kv_table_match has just filled: whole blocks, at
 * most max_tokens in total, that every group still holds on the device or on the host tier. Returns 0 without a tier.
 */
uint32_t kv_table_loadable(const struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes,
                           uint32_t max_tokens);

/* Extends the table by n_tokens positions (whole blocks) that kv_table_loadable has just found. Takes references on the
 * blocks that are on the device. For each block that is only on the host, takes a device block, names it and records
 * the copy; the host block is free afterwards. All or nothing: QUIRE_EXHAUSTED (no device blocks, or no space for
 * moves), QUIRE_NOT_FOUND (a block is on neither tier; possible in a windowed group when n_tokens is less than
 * kv_table_loadable returned) and QUIRE_NO_MEMORY take no block.
 */
int kv_table_load(struct kv_table *table, const struct key256 *hashes, uint32_t n_tokens);

/* Returns the copies recorded since the last kv_cache_clear_moves(). The caller makes them in this order, before
 * anything else reads or writes the blocks. Clearing declares that they were or will be made. There is space for two
 * copies, out and in, of each device block that has a tier. A step that takes no block twice needs no more. When the
 * space is full, no block moves to the host and no block is loaded. Valid until the next call that changes a table. */
const struct kv_move *kv_cache_moves(const struct kv_cache *cache, uint32_t *n_moves);
void kv_cache_clear_moves(struct kv_cache *cache);

/* Ensures that positions [0, n_tokens) have blocks, except those outside the window. n_computed: positions already
 * computed, <= n_tokens. A windowed group first releases the blocks that no position >= n_computed can read. The rest
 * is all or nothing: QUIRE_EXHAUSTED, or QUIRE_NO_MEMORY if the table had to grow, takes no block. */
int kv_table_reserve(struct kv_table *table, uint32_t n_computed, uint32_t n_tokens);

/* Names the computed, full block `index` (in blocks) of every group, so that other tables can match it. A hash that is
 * already named keeps its first block. Does nothing without prefix caching. */
void kv_table_publish(struct kv_table *table, uint32_t index, const struct key256 *hash);

/* Fills the empty table `to` with references on the first n_blocks blocks of `from`, which must be computed. This lets
 * the choices of one request share their prompt. In a windowed group, `to` gets only the blocks that position n_blocks
 * * block_tokens can read. Returns QUIRE_NOT_FOUND if `from` no longer holds those; `to` then stays empty. */
int kv_table_share(const struct kv_table *from, uint32_t n_blocks, struct kv_table *to);

/* Sets the tenant that owns the blocks which the table publishes from now on. It is below n_tenants, and 0 for a new
 * table. */
void kv_table_set_owner(struct kv_table *table, uint32_t tenant);

/* Releases the blocks past the first n_tokens positions. They must not be published: their content is no longer
 * needed. */
void kv_table_cut(struct kv_table *table, uint32_t n_tokens);

/* Releases all blocks, tail first. The empty table keeps its allocated entries. */
void kv_table_clear(struct kv_table *table);

/* Returns the block ids of one group. Entry i covers positions [i, i + 1) * block_tokens. Valid until the table
 * changes. */
const uint32_t *kv_table_blocks(const struct kv_table *table, uint32_t group, uint32_t *n_blocks);

/* Returns the number of blocks of a group on which the table holds references. */
uint32_t kv_table_held(const struct kv_table *table, uint32_t group);
/* Returns how many of the held blocks other tables hold as well. O(blocks). */
uint32_t kv_table_shared(const struct kv_table *table, uint32_t group);

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

/* Checks the invariants above. QUIRE_INTERNAL names the first broken one. O(blocks). */
int kv_cache_check(const struct kv_cache *cache, struct quire_error *err);

#endif
