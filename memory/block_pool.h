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
 * Free blocks are on doubly linked lists through the blocks: one of the blank, last in first out,
 * and one of the cached for each number of uses that the eviction tells apart, least recently given
 * back first. take() prefers blank ones. Then:
 *
 *   KV_EVICT_LRU    there is one list of cached blocks, and its front is given up.
 *   KV_EVICT_REUSE  the pool's clock counts the blocks that were taken. A block given back is due
 *                   at clock + (uses - 1) * n_blocks / 2, uses being 1 for being computed and 1
 *                   for each hit since, at most KV_MOST_USES; the block that is due first is given
 *                   up, on a tie the one of fewer uses. Each list is in order of due times, so only
 *                   its front is looked at. The uses of the last n_blocks names whose content was
 *                   lost are remembered, and count on when the same name is computed again.
 *
 * So a block that nobody hits again is gone after at most 2.5 n_blocks blocks were taken, whatever
 * it was worth before. Every operation is O(1) expected. The pool owns its arrays; one thread at a
 * time.
 */
#ifndef QUIRE_MEMORY_BLOCK_POOL_H
#define QUIRE_MEMORY_BLOCK_POOL_H

#include "base/hash.h"
#include "base/status.h"
#include "memory/host_tier.h"
#include "memory/prefix_index.h"

#include <stdint.h>

struct pool_block {
    uint32_t refs;
    uint32_t prev, next;   /* in its free list; KV_NO_BLOCK at the ends */
    struct kv_label label; /* of a named block */
};

struct pool_list {
    uint32_t head, tail;
};

struct block_pool {
    struct pool_block *blocks;
    struct prefix_index names;
    struct host_tier tier; /* below the pool */
    uint32_t n_blocks;
    struct pool_list lists[1 + KV_MOST_USES]; /* [0] blank, then cached */
    uint32_t n_lists; /* 2 for KV_EVICT_LRU, else all */
    uint64_t *due;  /* [n_blocks], of free and cached blocks; NULL for KV_EVICT_LRU */
    uint64_t clock; /* blocks taken */
    uint32_t n_free, n_cached_free;
};

int block_pool_init(struct block_pool *pool, const struct kv_config *config, uint32_t group, struct kv_ledger *ledger);
void block_pool_free(struct block_pool *pool);

/* Hands out a free block with one reference, without a name. KV_NO_BLOCK: none is free. */
uint32_t block_pool_take(struct block_pool *pool);
void block_pool_ref(struct block_pool *pool, uint32_t block);
void block_pool_unref(struct block_pool *pool, uint32_t block);

/* The block of that name, referenced or not; KV_NO_BLOCK: no block has it. */
uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash);
/* Names a referenced block, whose content was computed by the owner. A block that has a name and a
 * name that has a block keep each other. */
void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash, uint32_t owner);
/* Takes a block for the content of a detached host block, which keeps its name; there must be one
 * free, and room for two moves. */
uint32_t block_pool_load(struct block_pool *pool, uint32_t host_block, const struct key256 *hash);
/* A referenced block was hit. */
void block_pool_used(struct block_pool *pool, uint32_t block);
/* Takes the names of all free blocks away, and drops the host tier. */
void block_pool_drop_cached(struct block_pool *pool);

/* Invariants 1, 3, 4 and 6 of kv_cache.h. */
int block_pool_check(const struct block_pool *pool, struct quire_error *err);

#endif
