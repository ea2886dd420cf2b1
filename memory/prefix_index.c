#include "memory/prefix_index.h"

#include "base/status.h"
#include "memory/kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int prefix_index_init(struct prefix_index *index, uint32_t n_blocks)
{
    uint32_t n_buckets = 1;
    while (n_buckets < 2 * n_blocks)
        n_buckets *= 2;
    index->entries = calloc(n_blocks, sizeof *index->entries);
    index->buckets = calloc(n_buckets, sizeof *index->buckets);
    index->n_blocks = n_blocks;
    index->mask = n_buckets - 1;
    if (!index->entries || !index->buckets) {
        prefix_index_free(index);
        return QUIRE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_buckets; i++)
        index->buckets[i] = KV_NO_BLOCK;
    return QUIRE_OK;
}

void prefix_index_free(struct prefix_index *index)
{
    free(index->entries);
    free(index->buckets);
    memset(index, 0, sizeof *index);
}

static uint32_t *bucket_of(const struct prefix_index *index, const struct key256 *hash)
{
    uint32_t head;
    memcpy(&head, hash->bytes, sizeof head);
    return &index->buckets[head & index->mask];
}

uint32_t prefix_index_find(const struct prefix_index *index, const struct key256 *hash)
{
    uint32_t block = *bucket_of(index, hash);
    while (block != KV_NO_BLOCK && memcmp(index->entries[block].hash.bytes, hash->bytes, sizeof hash->bytes) != 0)
        block = index->entries[block].next;
    return block;
}

void prefix_index_insert(struct prefix_index *index, uint32_t block, const struct key256 *hash)
{
    struct prefix_entry *entry = &index->entries[block];
    uint32_t *bucket = bucket_of(index, hash);
    assert(!entry->named);
    entry->hash = *hash;
    entry->next = *bucket;
    entry->named = true;
    *bucket = block;
}

void prefix_index_remove(struct prefix_index *index, uint32_t block)
{
    struct prefix_entry *entry = &index->entries[block];
    uint32_t *link = bucket_of(index, &entry->hash);
    assert(entry->named);
    while (*link != block)
        link = &index->entries[*link].next;
    *link = entry->next;
    entry->named = false;
}
