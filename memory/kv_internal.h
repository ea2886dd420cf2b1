/* The structs and functions that the files of memory/ share. Not a public header: only memory/ includes it. */
#ifndef QUIRE_MEMORY_KV_INTERNAL_H
#define QUIRE_MEMORY_KV_INTERNAL_H

#include "memory/block_pool.h"

/* Names that kv_table_publish() accepted and that their blocks do not have yet. A step publishes many, and each waits
 * for the same few lines of cold memory. Together they wait once. */
#define KV_MOST_PENDING 16u
struct kv_pending {
    uint32_t n;
    struct {
        const struct kv_table *table;
        uint32_t index; /* of the block in the table */
        struct key256 hash;
    } names[KV_MOST_PENDING];
};

struct kv_cache {
    struct kv_config config;
    struct block_pool *pools; /* [n_groups] */
    struct kv_pending *pending;
    struct kv_ledger ledger;
    struct kv_table *tables; /* all tables, for kv_cache_check */
    uint32_t *counts; /* [blocks of the largest group] scratch of kv_cache_check */
#ifdef QUIRE_DEBUG
    uint32_t n_unchecked; /* calls since the last check */
#endif
};

/* One group's part of a table: [kept, first_held) are KV_NO_BLOCK, all others are referenced. kept: kv_kept(), the
 * blocks of the sinks. first_held is 0 until a block is missing. */
struct kv_span {
    uint32_t *blocks;
    uint32_t n, capacity, first_held;
};

/* What a step reads of a cache with one group is in the first cache line. */
struct kv_table {
    struct kv_cache *cache;
    uint32_t owner;
    uint32_t n_hit; /* leading blocks that were hit and are not yet counted as used */
    struct kv_span spans[KV_MAX_GROUPS];
    struct kv_table *prev, *next;
    void *memory; /* of the table */
};

/* Returns the number of blocks that hold positions [0, n_tokens). */
static inline uint32_t kv_ceil_blocks(uint32_t n_tokens, uint32_t block_tokens)
{
    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

/* Returns the leading blocks of a sequence that its window never releases: they hold the sinks. */
static inline uint32_t kv_kept(const struct kv_config *config, uint32_t group)
{
    return kv_ceil_blocks(config->groups[group].sinks, config->block_tokens);
}

/* Returns the first block behind those of the sinks that any position >= `position` can read. Returns 0 if there are no
 * blocks between the two. */
static inline uint32_t kv_first_needed(const struct kv_config *config, uint32_t group, uint32_t position)
{
    uint32_t window = config->groups[group].window;
    if (window == 0 || position < window)
        return 0;
    uint32_t first = (position - window + 1) / config->block_tokens;
    return first > kv_kept(config, group) ? first : 0;
}

/* Returns whether entry i of a span has a block. */
static inline bool kv_is_held(const struct kv_span *span, uint32_t kept, uint32_t i)
{
    return i < kept || i >= span->first_held;
}

/* ---- kv_table.c, for kv_load.c ---- */

/* Allocates n_entries in every group. QUIRE_NO_MEMORY leaves the table unchanged. */
int kv_grow_all(struct kv_table *table, uint32_t n_entries);
/* Releases the blocks that no position >= n_computed can read. */
void kv_trim_window(struct kv_table *table, uint32_t group, uint32_t n_computed);

/* ---- pending.c ---- */

/* Adds a name; the pending names before it are given first if there is no space. */
void kv_pend(const struct kv_cache *cache, const struct kv_table *table, uint32_t index, const struct key256 *hash);
/* Gives the pending names to their blocks, in the order in which they were published. A function that reads names, takes
 * or releases blocks, or changes a table's owner settles first, so a caller of the cache cannot see when a name is given.
 * Two need not: kv_table_load follows kv_table_match, and kv_table_cut releases blocks that have no name. */
void kv_give_names(const struct kv_cache *cache);
static inline void kv_settle(const struct kv_cache *cache)
{
    if (cache->pending->n > 0)
        kv_give_names(cache);
}

/* ---- check.c ---- */

/* Debug builds check the invariants at the end of each public call that changes state. In a cache of more than
 * 1,024 blocks, only some of the calls check, so that the mean cost of a call stays the same. */
#ifdef QUIRE_DEBUG
void kv_checked(struct kv_cache *cache, const char *function);
#define KV_CHECKED(cache) kv_checked(cache, __func__)
#else
#define KV_CHECKED(cache) ((void)(cache))
#endif

/* ---- peek.c ---- */

/* Returns the largest block count n in [from, limit] such that every group holds the blocks that a sequence with n
 * computed blocks needs. `from` must satisfy this, or be 0. Searches the device alone, or both tiers. */
uint32_t kv_longest_prefix(const struct kv_cache *cache, const struct key256 *hashes, uint32_t from, uint32_t limit,
                           bool host_too);

#endif
