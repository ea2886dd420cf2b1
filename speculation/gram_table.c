#include "speculation/gram_table.h"

#include <stdlib.h>

#define WAYS 8u
#define LINE_BYTES 64u
#define PAGE_BYTES 4096u

/* A bucket is a cache line. */
struct gram_bucket {
    uint64_t tags[WAYS / 4]; /* four 16-bit tags in each, from the hashes of the grams; 0: free */
    uint16_t stamps[WAYS];
    uint32_t at[WAYS];
};
_Static_assert(sizeof(struct gram_bucket) == LINE_BYTES, "a bucket is a cache line");

static uint64_t buckets_for(uint64_t n_grams)
{
    uint64_t n = (2 * n_grams + WAYS - 1) / WAYS;
    return n == 0 ? 1 : n > UINT32_MAX ? UINT32_MAX : n;
}

/* One extra cache line, to align the first bucket. */
uint64_t gram_table_bytes(uint64_t n_grams)
{
    return (buckets_for(n_grams) + 1) * LINE_BYTES;
}

int gram_table_create(struct gram_table *t, uint64_t n_grams, struct quire_error *err)
{
    t->n_buckets = (uint32_t)buckets_for(n_grams);
    t->memory = calloc((size_t)t->n_buckets + 1, LINE_BYTES);
    if (!t->memory)
        return quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    uintptr_t at = ((uintptr_t)t->memory + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1);
    t->buckets = (struct gram_bucket *)at;
    /* touches the memory now, not page by page while serving */
    for (uint32_t i = 0; i < t->n_buckets; i += PAGE_BYTES / LINE_BYTES)
        t->buckets[i].stamps[0] = UINT16_MAX;
    return QUIRE_OK;
}

void gram_table_free(struct gram_table *t)
{
    free(t->memory);
}

static struct gram_bucket *bucket_of(const struct gram_table *t, uint64_t hash)
{
    return t->buckets + ((hash >> 32) * t->n_buckets >> 32);
}

static uint16_t tag_of(uint64_t hash)
{
    uint16_t tag = (uint16_t)hash;
    return tag ? tag : 1;
}

/* Returns the first way with this tag, or WAYS. Compares four tags at once: a lane of the difference is 0 if they
 * agree, and only such a lane and the lanes above it borrow. */
static uint32_t way_of(const struct gram_bucket *b, uint16_t tag)
{
    const uint64_t ones = 0x0001000100010001u, tops = ones << 15;
    for (uint32_t i = 0; i < WAYS / 4; i++) {
        uint64_t difference = b->tags[i] ^ tag * ones, zeros = (difference - ones) & ~difference & tops;
        if (zeros)
            return 4 * i + (uint32_t)__builtin_ctzll(zeros) / 16;
    }
    return WAYS;
}

static void set_tag(struct gram_bucket *b, uint32_t way, uint16_t tag)
{
    uint32_t shift = 16 * (way % 4);
    b->tags[way / 4] = (b->tags[way / 4] & ~((uint64_t)0xffff << shift)) | (uint64_t)tag << shift;
}

void gram_table_prefetch(const struct gram_table *t, uint64_t hash)
{
    __builtin_prefetch(bucket_of(t, hash), 1);
}

uint32_t gram_table_find(const struct gram_table *t, uint64_t hash)
{
    const struct gram_bucket *b = bucket_of(t, hash);
    uint32_t way = way_of(b, tag_of(hash));
    return way < WAYS ? b->at[way] : GRAM_NONE;
}

/* Finds a way for a new gram. Returns WAYS if all are in use by live owners, which keep them. Evicting the newest entry
 * instead would let one owner with ever new grams evict all others. */
static uint32_t free_way(const struct gram_table *t, const struct gram_bucket *b)
{
    uint32_t way = way_of(b, 0);
    if (way == WAYS)
        for (way = 0; way < WAYS && t->is_alive(t->owner, b->stamps[way], b->at[way]);)
            way++;
    return way;
}

uint32_t gram_table_put(struct gram_table *t, uint64_t hash, uint16_t stamp, uint32_t at)
{
    struct gram_bucket *b = bucket_of(t, hash);
    uint16_t tag = tag_of(hash);
    uint32_t way = way_of(b, tag), before = way < WAYS ? b->at[way] : GRAM_NONE;
    if (way == WAYS)
        way = free_way(t, b);
    if (way < WAYS) {
        set_tag(b, way, tag);
        b->stamps[way] = stamp;
        b->at[way] = at;
    }
    return before;
}
