/* The blocks of one KV group: reference counts, the free lists and the names of full blocks.
 *
 * A block is in one of three states:
 *
 *                  take                       unref to 0, nameless
 *   free and blank ------> referenced (count > 0) ------> free and blank
 *                  take (name given up)          \ unref to 0, named
 *   free and cached -----> referenced             \-----> free and cached
 *   free and cached -ref-> referenced (a hit: the name stays)
 *
 * Free blocks are on doubly linked lists, linked through the blocks. One list holds the blank blocks, last in, first
 * out. Another holds the cached blocks for each number of uses that the eviction policy distinguishes, least recently
 * released first. take() prefers blank blocks. After those:
 *
 *   KV_EVICT_LRU    There is one list of cached blocks. take() evicts its front.
 *   KV_EVICT_REUSE  The pool's clock counts the blocks that were taken. A released block is due at
 *                   clock + (uses - 1) * n_blocks / 2. The computation of a block is one use, and each later hit is
 *                   another, at most KV_MOST_USES. take() evicts the block with the smallest due time, on a tie the one
 *                   with fewer uses. Each list is in order of due times, so take() examines only the fronts. The pool
 *                   remembers the uses of the last n_blocks evicted names and continues the count when the same name is
 *                   computed again.
 *
 * So a block without further hits is evicted after at most 2.5 n_blocks blocks were taken, whatever its uses were.
 * Every operation takes O(1) expected time. The pool owns its arrays. One thread at a time.
 */
#ifndef QUIRE_MEMORY_BLOCK_POOL_H
#define QUIRE_MEMORY_BLOCK_POOL_H

#include "base/hash.h"
#include "base/status.h"
#include "memory/host_tier.h"
#include "memory/kv_cache.h"
#include "memory/prefix_index.h"

#include <stdbool.h>
#include <stdint.h>

/* Two in a cache line. What an eviction reads is here and in a bucket of the index; the hash itself only if a lower tier
 * wants it. */
struct pool_block {
    uint32_t refs;
    uint32_t prev, next; /* in its free list; KV_NO_BLOCK at the ends */
    struct kv_label label; /* of a named block */
    uint32_t tag; /* prefix_tag() of its last name */
    bool named;
    uint64_t due; /* of a free and cached block, with KV_EVICT_REUSE */
};

/* An evicted name stays in the index until this many wait, or a block is named: the bucket of each has been loaded by
 * then. block_pool_find() does not return such a block. */
#define POOL_MOST_STALE 16u

struct pool_list {
    uint32_t head, tail;
};

struct block_pool {
    struct pool_block *blocks;
    struct prefix_index names;
    struct host_tier *tier; /* the tier below the pool; owned */
    uint32_t n_blocks;
    struct pool_list lists[1 + KV_MOST_USES]; /* [0] blank, the others cached */
    uint32_t n_lists; /* 2 for KV_EVICT_LRU, otherwise all */
    uint64_t clock; /* blocks taken */
    uint32_t n_free, n_cached_free;
    uint32_t n_stale, stale[POOL_MOST_STALE]; /* evicted blocks that the index still has */
    void *block_memory;
};

int block_pool_init(struct block_pool *pool, const struct kv_config *config, uint32_t group, struct kv_ledger *ledger);
void block_pool_free(struct block_pool *pool);

/* Returns a free block with one reference and no name, or KV_NO_BLOCK if no block is free. */
uint32_t block_pool_take(struct block_pool *pool);
void block_pool_ref(struct block_pool *pool, uint32_t block);
void block_pool_unref(struct block_pool *pool, uint32_t block);

/* Returns the block with that name, referenced or not, or KV_NO_BLOCK. */
uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash);
/* Begins to load what block_pool_find() reads. */
static inline void block_pool_prefetch_find(const struct block_pool *pool, const struct key256 *hash)
{
    prefix_index_prefetch(&pool->names, prefix_tag(hash));
}
/* Begins to load what block_pool_ref() and block_pool_unref() read. */
static inline void block_pool_prefetch(const struct block_pool *pool, uint32_t block)
{
    kv_prefetch(&pool->blocks[block]);
}
/* Names a referenced block whose content `owner` computed. Does nothing if the block already has a name or the name
 * already has a block. */
void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash, uint32_t owner);
/* Takes a block for the content of a detached host block, which keeps its name. The caller ensures that a block is free
 * and that the ledger has space for two moves. */
uint32_t block_pool_load(struct block_pool *pool, uint32_t host_block, const struct key256 *hash);
/* Records a hit of a referenced block. */
void block_pool_used(struct block_pool *pool, uint32_t block);
/* Removes the names of all free blocks and drops the host tier. */
void block_pool_drop_cached(struct block_pool *pool);

/* Invariants 1, 3, 4 and 6 of kv_cache.h. */
int block_pool_check(const struct block_pool *pool, struct quire_error *err);

#endif
