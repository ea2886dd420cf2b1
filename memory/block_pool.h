/* The blocks of one KV group: reference counts, the free list and the names of full blocks.
 *
 * A block is in one of three states:
 *
 *                  take                       unref to 0, nameless
 *   free and blank ------> referenced (count > 0) ------> free and blank
 *                  take (name given up)          \ unref to 0, named
 *   free and cached -----> referenced             \-----> free and cached
 *   free and cached -ref-> referenced (a hit: the name stays)
 *
 * The free list is doubly linked through the blocks: blank ones at the front, cached ones by last
 * use behind them, so the front is always the cheapest block to hand out. Every operation is O(1).
 * The pool owns its arrays; one thread at a time.
 */
#ifndef QUIRE_MEMORY_BLOCK_POOL_H
#define QUIRE_MEMORY_BLOCK_POOL_H

#include "base/hash.h"
#include "base/status.h"
#include "memory/prefix_index.h"

#include <stdint.h>

struct pool_block {
    uint32_t refs;
    uint32_t prev, next; /* in the free list; KV_NO_BLOCK at its ends */
};

struct block_pool {
    struct pool_block *blocks;
    struct prefix_index names;
    uint32_t n_blocks;
    uint32_t head, tail; /* of the free list */
    uint32_t n_free, n_cached_free;
    uint64_t n_evicted;
};

int block_pool_init(struct block_pool *pool, uint32_t n_blocks);
void block_pool_free(struct block_pool *pool);

/* Hands out the front of the free list with one reference, without a name. KV_NO_BLOCK: none is
 * free. */
uint32_t block_pool_take(struct block_pool *pool);
void block_pool_ref(struct block_pool *pool, uint32_t block);
void block_pool_unref(struct block_pool *pool, uint32_t block);

/* The block of that name, referenced or not; KV_NO_BLOCK: no block has it. */
uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash);
/* Names a referenced block. A block that has a name and a name that has a block keep each other. */
void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash);
/* Takes the names of all free blocks away. */
void block_pool_drop_cached(struct block_pool *pool);

/* Invariants 1, 3 and 4 of kv_cache.h, for group `group` in the message. */
int block_pool_check(const struct block_pool *pool, uint32_t group, struct quire_error *err);

#endif
