#include "speculation/gram_table.h"

#include <stdlib.h>

#define WAYS 8u
#define LINE_BYTES 64u

struct gram_entry {
    uint16_t tag; /* of the gram's hash; 0: nobody's */
    uint16_t stamp;
    uint32_t at;
};
_Static_assert(WAYS * sizeof(struct gram_entry) == LINE_BYTES, "a bucket is a cache line");

static uint64_t buckets_for(uint64_t n_grams)
{
    uint64_t n = (2 * n_grams + WAYS - 1) / WAYS;
    return n == 0 ? 1 : n > UINT32_MAX ? UINT32_MAX : n;
}

/* A line more, since calloc() gives pages that are not touched before they are used, but does not align them. */
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
    t->entries = (struct gram_entry *)at;
    return QUIRE_OK;
}

void gram_table_free(struct gram_table *t)
{
    free(t->memory);
}

static struct gram_entry *bucket_of(const struct gram_table *t, uint64_t hash)
{
    return t->entries + ((hash >> 32) * t->n_buckets >> 32) * WAYS;
}

static uint16_t tag_of(uint64_t hash)
{
    uint16_t tag = (uint16_t)hash;
    return tag ? tag : 1;
}

void gram_table_prefetch(const struct gram_table *t, uint64_t hash)
{
    __builtin_prefetch(bucket_of(t, hash));
}

uint32_t gram_table_find(const struct gram_table *t, uint64_t hash)
{
    const struct gram_entry *bucket = bucket_of(t, hash);
    uint16_t tag = tag_of(hash);
    for (uint32_t i = 0; i < WAYS; i++)
        if (bucket[i].tag == tag)
            return bucket[i].at;
    return GRAM_NONE;
}

/* An entry for a gram that has none; NULL: all are somebody's, who keep them. Would the newest go first instead, whoever
 * puts ever new grams would push out everybody else's. */
static struct gram_entry *room_in(const struct gram_table *t, struct gram_entry *bucket)
{
    for (uint32_t i = 0; i < WAYS; i++)
        if (bucket[i].tag == 0)
            return &bucket[i];
    for (uint32_t i = 0; i < WAYS; i++)
        if (!t->is_alive(t->owner, bucket[i].stamp, bucket[i].at))
            return &bucket[i];
    return NULL;
}

uint32_t gram_table_put(struct gram_table *t, uint64_t hash, uint16_t stamp, uint32_t at)
{
    struct gram_entry *bucket = bucket_of(t, hash), *e = NULL;
    uint16_t tag = tag_of(hash);
    uint32_t before = GRAM_NONE;
    for (uint32_t i = 0; i < WAYS && !e; i++)
        if (bucket[i].tag == tag)
            e = &bucket[i];
    if (e)
        before = e->at;
    else
        e = room_in(t, bucket);
    if (e)
        *e = (struct gram_entry){.tag = tag, .stamp = stamp, .at = at};
    return before;
}
