/* The names of one group's blocks: hash -> block. An open-addressed hash table whose size is fixed by the number of
 * blocks. A block has at most one name, so nothing is allocated after creation.
 *
 * A bucket is one cache line with up to eight names: a byte of each hash, all in one word, and the blocks. A name belongs
 * into the bucket that its tag selects, or into the next one with a free slot. Each full bucket on the way counts the
 * names that passed it. A look-up therefore ends at the first bucket that no name passed, and a removal leaves no
 * tombstone. The hash of a block is compared only if the byte is equal, so a look-up that finds nothing waits for one
 * line. There is one bucket for four blocks: 16 bytes a block. With every block named, 1 % of the names are not in their
 * own bucket.
 *
 * Hashes come from a keyed function, so their first four bytes are the tag. The index owns its arrays. One thread at a time.
 * Every operation takes O(1) expected time.
 */
#ifndef QUIRE_MEMORY_PREFIX_INDEX_H
#define QUIRE_MEMORY_PREFIX_INDEX_H

#include "base/hash.h"
#include "memory/cache_line.h"

#include <stdint.h>
#include <string.h>

#define PREFIX_BUCKET_SLOTS 8u

struct prefix_bucket {
    uint64_t bytes; /* one for each slot; 0: a free slot */
    uint32_t blocks[PREFIX_BUCKET_SLOTS];
    uint32_t n_passed; /* names in later buckets that this one had no slot for */
    uint32_t unused[5];
};

struct prefix_index {
    struct prefix_bucket *buckets; /* [n_buckets] */
    struct key256 *hashes; /* [n_blocks], of named blocks */
    uint32_t n_buckets;
    void *memory; /* of both arrays */
};

/* 1 <= n_blocks <= 2^30. QUIRE_NO_MEMORY leaves nothing allocated. */
int prefix_index_init(struct prefix_index *index, uint32_t n_blocks);
void prefix_index_free(struct prefix_index *index);

/* Returns the block with that name, or KV_NO_BLOCK. */
uint32_t prefix_index_find(const struct prefix_index *index, const struct key256 *hash);
/* Gives a nameless block a name that no block has. */
void prefix_index_insert(struct prefix_index *index, uint32_t block, const struct key256 *hash);
/* Removes the name of a named block. `tag` is the tag of its hash. */
void prefix_index_remove(struct prefix_index *index, uint32_t block, uint32_t tag);
/* Returns the number of names. O(n_blocks), for checks. */
uint32_t prefix_index_count(const struct prefix_index *index);

static inline uint32_t prefix_tag(const struct key256 *hash)
{
    uint32_t tag;
    memcpy(&tag, hash->bytes, sizeof tag);
    return tag;
}

/* Returns the bucket to which names with that tag belong. */
static inline uint32_t prefix_index_home(const struct prefix_index *index, uint32_t tag)
{
    return (uint32_t)((uint64_t)tag * index->n_buckets >> 32);
}

/* Begins to load what a look-up of that tag reads. */
static inline void prefix_index_prefetch(const struct prefix_index *index, uint32_t tag)
{
    kv_prefetch(&index->buckets[prefix_index_home(index, tag)]);
}

#endif
