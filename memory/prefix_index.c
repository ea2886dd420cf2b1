#include "memory/prefix_index.h"

#include "base/status.h"
#include "memory/kv_cache.h"

#include <assert.h>
#include <stdbool.h>

#define BLOCKS_PER_BUCKET 4u

_Static_assert(sizeof(struct prefix_bucket) == KV_LINE_BYTES, "a bucket is one cache line");

int prefix_index_init(struct prefix_index *index, uint32_t n_blocks)
{
    memset(index, 0, sizeof *index);
    index->n_buckets = n_blocks / BLOCKS_PER_BUCKET + 1;
    size_t n_lines = index->n_buckets + ((size_t)n_blocks * sizeof *index->hashes + KV_LINE_BYTES - 1) / KV_LINE_BYTES;
    index->buckets = kv_calloc_lines(n_lines, KV_LINE_BYTES, &index->memory);
    if (!index->buckets)
        return QUIRE_NO_MEMORY;
    index->hashes = (struct key256 *)(void *)(index->buckets + index->n_buckets);
    return QUIRE_OK;
}

void prefix_index_free(struct prefix_index *index)
{
    free(index->memory);
    memset(index, 0, sizeof *index);
}

static uint32_t after(const struct prefix_index *index, uint32_t bucket)
{
    return bucket + 1 < index->n_buckets ? bucket + 1 : 0;
}

#define EACH_BYTE 0x0101010101010101u
#define LOW_BITS 0x7f7f7f7f7f7f7f7fu

/* The byte of a name. The bucket comes from the tag's high bits. */
static uint8_t byte_of(uint32_t tag)
{
    uint8_t low = (uint8_t)tag;
    return low ? low : 1;
}

/* Returns the top bit of each slot with that byte, without a branch: where a name is cannot be predicted. */
static inline uint64_t slots_with(const struct prefix_bucket *b, uint8_t byte)
{
    uint64_t x = b->bytes ^ byte * EACH_BYTE;
    return ~(((x & LOW_BITS) + LOW_BITS) | x | LOW_BITS);
}

static inline uint32_t first_slot(uint64_t slots)
{
    return (uint32_t)__builtin_ctzll(slots) / 8;
}

uint32_t prefix_index_find(const struct prefix_index *index, const struct key256 *hash)
{
    uint32_t tag = prefix_tag(hash), at = prefix_index_home(index, tag);
    for (uint32_t i = 0; i < index->n_buckets; i++, at = after(index, at)) {
        const struct prefix_bucket *b = &index->buckets[at];
        for (uint64_t slots = slots_with(b, byte_of(tag)); slots; slots &= slots - 1) {
            uint32_t block = b->blocks[first_slot(slots)];
            if (memcmp(index->hashes[block].bytes, hash->bytes, sizeof hash->bytes) == 0)
                return block;
        }
        if (b->n_passed == 0)
            break;
    }
    return KV_NO_BLOCK;
}

void prefix_index_insert(struct prefix_index *index, uint32_t block, const struct key256 *hash)
{
    uint32_t tag = prefix_tag(hash), at = prefix_index_home(index, tag);
    uint64_t slots;
    index->hashes[block] = *hash;
    while ((slots = slots_with(&index->buckets[at], 0)) == 0) {
        index->buckets[at].n_passed++;
        at = after(index, at);
    }
    index->buckets[at].bytes |= (uint64_t)byte_of(tag) << 8 * first_slot(slots);
    index->buckets[at].blocks[first_slot(slots)] = block;
}

/* Frees the slot of a block. Returns false if the bucket does not have it. */
static bool drop(struct prefix_bucket *b, uint32_t block, uint8_t byte)
{
    for (uint64_t slots = slots_with(b, byte); slots; slots &= slots - 1)
        if (b->blocks[first_slot(slots)] == block) {
            b->bytes &= ~((uint64_t)0xff << 8 * first_slot(slots));
            return true;
        }
    return false;
}

void prefix_index_remove(struct prefix_index *index, uint32_t block, uint32_t tag)
{
    uint32_t at = prefix_index_home(index, tag);
    while (!drop(&index->buckets[at], block, byte_of(tag))) {
        assert(index->buckets[at].n_passed > 0);
        index->buckets[at].n_passed--;
        at = after(index, at);
    }
}

uint32_t prefix_index_count(const struct prefix_index *index)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < index->n_buckets; i++)
        n += PREFIX_BUCKET_SLOTS - (uint32_t)__builtin_popcountll(slots_with(&index->buckets[i], 0));
    return n;
}
