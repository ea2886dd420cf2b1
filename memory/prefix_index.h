/* The names of one group's blocks: hash -> block. A chained hash table whose size is fixed by the
 * number of blocks: a block has at most one name, so nothing is ever allocated after creation.
 * There are two buckets a block: 8 bytes that make a look-up a third cheaper than one does, since
 * the next entry of a bucket is a miss of the processor's caches.
 *
 * Hashes come from a keyed function, so their own first bytes are the bucket. The index owns its
 * arrays; one thread at a time. Every operation is O(1) expected.
 */
#ifndef QUIRE_MEMORY_PREFIX_INDEX_H
#define QUIRE_MEMORY_PREFIX_INDEX_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix_entry {
    struct key256 hash;
    uint32_t next; /* block further down the bucket */
    bool named;
};

struct prefix_index {
    struct prefix_entry *entries; /* [n_blocks], by block id */
    uint32_t *buckets;            /* [mask + 1], first block or KV_NO_BLOCK */
    uint32_t n_blocks, mask;
};

/* QUIRE_NO_MEMORY leaves nothing behind. 1 <= n_blocks <= 2^30. */
int prefix_index_init(struct prefix_index *index, uint32_t n_blocks);
void prefix_index_free(struct prefix_index *index);

/* The block of that name, or KV_NO_BLOCK. */
uint32_t prefix_index_find(const struct prefix_index *index, const struct key256 *hash);
/* Names a nameless block with a name that no block has. */
void prefix_index_insert(struct prefix_index *index, uint32_t block, const struct key256 *hash);
/* Takes the name of a named block away. */
void prefix_index_remove(struct prefix_index *index, uint32_t block);

#endif
