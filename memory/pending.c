/* The names that wait for their blocks. */
#include "memory/kv_internal.h"

void kv_pend(const struct kv_cache *cache, const struct kv_table *table, uint32_t index, const struct key256 *hash)
{
    struct kv_pending *pending = cache->pending;
    if (pending->n == KV_MOST_PENDING)
        kv_give_names(cache);
    kv_prefetch(table);
    for (uint32_t g = 0; g < cache->config.n_groups; g++)
        block_pool_prefetch_find(&cache->pools[g], hash);
    pending->names[pending->n].table = table;
    pending->names[pending->n].index = index;
    pending->names[pending->n].hash = *hash;
    pending->n++;
}

/* Returns where a table has that block, or NULL if it holds none there. */
static const uint32_t *entry_of(const struct kv_span *span, uint32_t kept, uint32_t index)
{
    return kv_is_held(span, kept, index) && index < span->n ? &span->blocks[index] : NULL;
}

/* Three passes: each begins to load what the next one reads, for all names at once. */
static void give_in_group(const struct kv_cache *cache, uint32_t group)
{
    const struct kv_pending *pending = cache->pending;
    struct block_pool *pool = &cache->pools[group];
    const uint32_t *entries[KV_MOST_PENDING], kept = kv_kept(&cache->config, group);
    for (uint32_t i = 0; i < pending->n; i++) {
        entries[i] = entry_of(&pending->names[i].table->spans[group], kept, pending->names[i].index);
        if (entries[i])
            kv_prefetch(entries[i]);
    }
    for (uint32_t i = 0; i < pending->n; i++)
        if (entries[i]) {
            block_pool_prefetch(pool, *entries[i]);
            kv_prefetch(&pool->names.hashes[*entries[i]]);
        }
    for (uint32_t i = 0; i < pending->n; i++)
        if (entries[i])
            block_pool_name(pool, *entries[i], &pending->names[i].hash, pending->names[i].table->owner);
}

void kv_give_names(const struct kv_cache *cache)
{
    for (uint32_t g = 0; g < cache->config.n_groups; g++)
        give_in_group(cache, g);
    cache->pending->n = 0;
}
