/* The last position of each run of tokens (gram): a table of fixed size from hashes to positions.
 *
 * A hash selects a bucket of 8 entries, one cache line, and 16 of its bits select an entry. A lookup or insertion
 * touches only that line, whatever the table contains. The result may be another gram's position (one in 10^4), so the
 * caller compares the tokens. In a full bucket, an entry of an owner that has left is reused. If all owners are alive,
 * the gram is not stored: the table neither grows nor evicts for a newcomer. With two entries per gram, 1 in 100 is
 * lost in buckets that are full by chance.
 *
 * Owns its memory. One thread at a time.
 */
#ifndef QUIRE_SPECULATION_GRAM_TABLE_H
#define QUIRE_SPECULATION_GRAM_TABLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GRAM_NONE UINT32_MAX

struct gram_bucket;
struct gram_table {
    struct gram_bucket *buckets;
    void *memory;
    uint32_t n_buckets;
    /* Returns whether the owner of an entry still exists. */
    bool (*is_alive)(const void *owner, uint16_t stamp, uint32_t at);
    const void *owner;
};

/* Bytes of a table for this many grams, with two entries each. */
uint64_t gram_table_bytes(uint64_t n_grams);
int gram_table_create(struct gram_table *table, uint64_t n_grams, struct quire_error *err);
void gram_table_free(struct gram_table *table);

/* Returns the last stored position, or GRAM_NONE. A gram that was not stored is not found. */
uint32_t gram_table_find(const struct gram_table *table, uint64_t hash);
/* Returns the previous position, or GRAM_NONE. stamp: passed to is_alive(). */
uint32_t gram_table_put(struct gram_table *table, uint64_t hash, uint16_t stamp, uint32_t at);
/* Prefetches the bucket. */
void gram_table_prefetch(const struct gram_table *table, uint64_t hash);

/* A hash that grows token by token from an owner's seed; gram_hash_end() of it is the key of the table. */
static inline uint64_t gram_hash_begin(uint64_t seed)
{
    return (seed + 1) * 0x9e3779b97f4a7c15u;
}
static inline uint64_t gram_hash_add(uint64_t hash, uint32_t token)
{
    return ((hash ^ token) * 0xd6e8feb86659fd93u) ^ (hash >> 29);
}
static inline uint64_t gram_hash_end(uint64_t hash, uint32_t n_tokens)
{
    hash = (hash ^ (hash >> 32)) * 0xbf58476d1ce4e5b9u + n_tokens;
    return (hash ^ (hash >> 29)) * 0x94d049bb133111ebu;
}

#endif
