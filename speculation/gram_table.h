/* Where a run of tokens (a gram) was last seen: a table from hashes to places, of a size that never changes.
 *
 * A hash names a bucket of 8 entries, one cache line, and 16 of its bits an entry there: looking up and putting touch
 * that line and nothing else, whatever is in the table. What is found may be another gram's place (one in 10^4), so the
 * caller compares the tokens. In a full bucket the entry of somebody who has gone is taken; where nobody has,
 * the gram is not remembered: the table neither grows nor forgets for a newcomer. With two entries for each gram, buckets
 * that are full by chance lose 1 in 100.
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
    /* Whether whoever put an entry is still there. */
    bool (*is_alive)(const void *owner, uint16_t stamp, uint32_t at);
    const void *owner;
};

/* Of a table for so many grams: two entries each. */
uint64_t gram_table_bytes(uint64_t n_grams);
int gram_table_create(struct gram_table *table, uint64_t n_grams, struct quire_error *err);
void gram_table_free(struct gram_table *table);

/* The last place that was put; GRAM_NONE. What was not remembered is not found. */
uint32_t gram_table_find(const struct gram_table *table, uint64_t hash);
/* Returns the place that was there before; GRAM_NONE. stamp: what is_alive() will be told. */
uint32_t gram_table_put(struct gram_table *table, uint64_t hash, uint16_t stamp, uint32_t at);
/* Asks for the bucket ahead of its use. */
void gram_table_prefetch(const struct gram_table *table, uint64_t hash);

/* A hash that grows by a token at a time, from an owner's seed; gram_hash_end() of it goes into the table. */
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
