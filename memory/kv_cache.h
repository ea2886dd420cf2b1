/* memory/: which KV block holds what. Ids only, never bytes: the same code plans a GPU's memory on
 * a laptop.
 *
 * A KV group is a set of layers with the same attention span: full, or a sliding window. Each
 * group has a pool of blocks of its own and each sequence a block table per group. Full blocks that
 * were computed may be published under their hash and shared; a block nobody refers to stays
 * findable until the pool hands it out again (least recently used first, the tail of a sequence
 * before its head).
 *
 * Pure: no clock, thread, I/O or device. One thread at a time. The cache owns every block; a
 * kv_table owns references on blocks and must be released before the cache is destroyed.
 *
 * Invariants (kv_cache_check):
 *  1. In each group, every block is exactly one of: referenced (count > 0), free and cached, free
 *     and blank.
 *  2. A block's reference count is the number of table entries that name it.
 *  3. The free lists of a group hold exactly its unreferenced blocks: one the blank ones, which are
 *     handed out first, the others the cached ones, each in the order they are given up in.
 *  4. The prefix index maps a hash to at most one block of a group, and that block carries that
 *     hash.
 *  5. Without tables, all blocks of all groups are free.
 *  6. A name is on the host tier at most once, and not there while a device block of that group has
 *     it; the tier's list holds every used host block once, in the order they came.
 */
#ifndef QUIRE_MEMORY_KV_CACHE_H
#define QUIRE_MEMORY_KV_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_MAX_GROUPS 4
#define KV_NO_BLOCK UINT32_MAX /* table entry behind a window: never read */

/* Which cached block that nobody refers to is given up first. */
enum kv_eviction {
    KV_EVICT_LRU,   /* the least recently used */
    KV_EVICT_REUSE, /* also least recently used, but each hit of a block's name, up to three,
                       counts as half a pool of blocks taken later: block_pool.h */
};

struct kv_config {
    uint32_t block_tokens; /* positions a block holds */
    uint32_t n_groups;
    bool prefix_caching;
    enum kv_eviction eviction;
    uint32_t n_tenants;    /* owners of blocks, for counters; 0 = 1 */
    struct {
        uint32_t n_blocks;
        uint32_t n_host_blocks; /* second tier: cached blocks that are given up move here, the
                                   oldest out; 0 = none. Needs prefix_caching. */
        uint32_t window; /* 0 = full attention; else positions that stay readable, the token's own
                            included */
    } groups[KV_MAX_GROUPS];
};

/* A copy of one block between the device's arena and the host tier's, both of group `group`. */
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
/* Drops every reference, tail first, and the table. NULL is fine. */
void kv_table_destroy(struct kv_table *table);

/* Makes room for the entries of n_tokens positions, so that later calls on this table allocate
 * nothing while it stays within them. Takes no block. QUIRE_NO_MEMORY leaves the table as it
 * was. */
int kv_table_prepare(struct kv_table *table, uint32_t n_tokens);

/* Takes references on the longest prefix that every group still holds, at most max_tokens
 * positions and whole blocks only, into an empty table. Returns the positions covered. For a
 * windowed group only the blocks that the next position can read are needed; entries before them
 * are KV_NO_BLOCK. */
uint32_t kv_table_match(struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes, uint32_t max_tokens);

/* Leading blocks of the names that groups with full attention have on either tier, found from a
 * guess of how many there were last time: two look-ups when nothing changed. A block that is gone
 * from the middle of a prefix may go unnoticed. Takes nothing. */
uint32_t kv_cache_peek(const struct kv_cache *cache, const struct key256 *hashes, uint32_t n_hashes, uint32_t hint);

/* Positions that kv_table_load could add to a table that kv_table_match has just filled: whole
 * blocks, at most up to max_tokens in all, which every group still has on the device or on the host
 * tier. 0 without a tier. */
uint32_t kv_table_loadable(const struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes,
                           uint32_t max_tokens);

/* Extends the table by n_tokens positions, whole blocks, that kv_table_loadable has just found:
 * takes references on what is on the device, and a device block for each that is only on the host,
 * names it and records the copy. The host block is free again. All or nothing: QUIRE_EXHAUSTED (no
 * device blocks, or no room for moves), QUIRE_NOT_FOUND (a block is on neither tier, as it may be
 * for fewer positions than were found, in a windowed group) and QUIRE_NO_MEMORY take none. */
int kv_table_load(struct kv_table *table, const struct key256 *hashes, uint32_t n_tokens);

/* Copies recorded since the last kv_cache_clear_moves(), to be made in this order before anything
 * else reads or writes the blocks; clearing says that they were or will be. There is room for two
 * copies of each device block that has a tier, out and in: as many as a step needs that takes no
 * block twice. Past it nothing spills and nothing is loaded. Valid until the next call that changes
 * a table. */
const struct kv_move *kv_cache_moves(const struct kv_cache *cache, uint32_t *n_moves);
void kv_cache_clear_moves(struct kv_cache *cache);

/* Makes sure positions [0, n_tokens) have blocks (those behind a window excepted). n_computed:
 * positions already computed, <= n_tokens; a windowed group first gives back what no position >=
 * n_computed can read. Beyond that it is all or nothing: QUIRE_EXHAUSTED (or QUIRE_NO_MEMORY, when
 * the table had to grow) takes no block. */
int kv_table_reserve(struct kv_table *table, uint32_t n_computed, uint32_t n_tokens);

/* Names the computed, full block `index` (in blocks) of every group so that others can match it.
 * A hash that is already named keeps its first block. No-op without prefix caching. */
void kv_table_publish(struct kv_table *table, uint32_t index, const struct key256 *hash);

/* Fills the empty table `to` with references on the first n_blocks blocks of `from`, which must be
 * computed: the choices of one request share their prompt. In a windowed group only what position
 * n_blocks * block_tokens can read is taken; QUIRE_NOT_FOUND when `from` no longer holds that, `to`
 * stays empty. */
int kv_table_share(const struct kv_table *from, uint32_t n_blocks, struct kv_table *to);

/* Whose blocks the table publishes from here on, below n_tenants; 0 for a new table. */
void kv_table_set_owner(struct kv_table *table, uint32_t tenant);

/* Gives back the blocks past those of the first n_tokens positions, which were never published: what was computed there
 * is not wanted after all. */
void kv_table_cut(struct kv_table *table, uint32_t n_tokens);

/* Gives back all blocks, tail first; the table is empty again and keeps its room. */
void kv_table_clear(struct kv_table *table);

/* Block ids of one group; entry i covers positions [i, i + 1) * block_tokens. Valid until the table
 * changes. */
const uint32_t *kv_table_blocks(const struct kv_table *table, uint32_t group, uint32_t *n_blocks);

/* Blocks of a group that the table holds references on. */
uint32_t kv_table_held(const struct kv_table *table, uint32_t group);
/* Of those, blocks that others hold, too. O(blocks). */
uint32_t kv_table_shared(const struct kv_table *table, uint32_t group);

struct kv_usage {
    uint32_t n_blocks, n_free, n_cached_free; /* n_cached_free is part of n_free */
    uint64_t n_evicted; /* cached blocks whose content was lost: no tier has it */
    uint32_t n_host_blocks, n_host_used;
    uint64_t n_spilled, n_loaded; /* copies to and from the host tier */
};
struct kv_usage kv_cache_usage(const struct kv_cache *cache, uint32_t group);
/* n_evicted of all groups, of blocks that the tenant published. */
uint64_t kv_cache_evicted(const struct kv_cache *cache, uint32_t tenant);

/* The most blocks of a group one sequence of n_tokens positions can hold at once when at most
 * chunk positions are computed a step: what must fit for a request to be servable at all. */
uint32_t kv_blocks_needed(const struct kv_config *config, uint32_t group, uint32_t n_tokens, uint32_t chunk);

/* Forgets every cached block that nobody refers to, on both tiers. */
void kv_cache_drop_cached(struct kv_cache *cache);

/* Checks the invariants above; QUIRE_INTERNAL names the first that is broken. O(blocks). */
int kv_cache_check(const struct kv_cache *cache, struct quire_error *err);

#endif
