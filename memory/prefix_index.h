/* The names of one group's blocks: hash -> block. A chained hash table whose size is fixed by the number of blocks. A
 * block has at most one name, so nothing is allocated after creation. There are two buckets per block. They take 8
 * bytes per block and make a look-up a third cheaper than one bucket per block, because the next entry of a bucket is a
 * miss of the processor's caches.
 *
 * Hashes come from a keyed function, so their first bytes select the bucket. The index owns its arrays. One thread at a
 * time. Every operation takes O(1) expected time.
 */
#ifndef QUIRE_MEMORY_PREFIX_INDEX_H
#define QUIRE_MEMORY_PREFIX_INDEX_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix_entry {
    struct key256 hash;
    uint32_t next; /* next block in the bucket */
    bool named;
};

struct prefix_index {
    struct prefix_entry *entries; /* [n_blocks], by block id */
    uint32_t *buckets;            /* [mask + 1], first block or KV_NO_BLOCK */
    uint32_t n_blocks, mask;
};

/* 1 <= n_blocks <= 2^30. QUIRE_NO_MEMORY leaves nothing allocated. */
int prefix_index_init(struct prefix_index *index, uint32_t n_blocks);
void prefix_index_free(struct prefix_index *index);

/* Returns the block with that name, or KV_NO_BLOCK. */
uint32_t prefix_index_find(const struct prefix_index *index, const struct key256 *hash);
/* Gives a nameless block a name that no block has. */
void prefix_index_insert(struct prefix_index *index, uint32_t block, const struct key256 *hash);
/* Removes the name of a named block. */
void prefix_index_remove(struct prefix_index *index, uint32_t block);

#endif
