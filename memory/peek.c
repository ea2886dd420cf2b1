/* How much of a prefix is cached, without taking it: what a policy ranks by. */
#include "memory/kv_internal.h"

static bool is_cached(const struct kv_cache *cache, const struct key256 *hash)
{
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const struct block_pool *pool = &cache->pools[g];
        if (cache->config.groups[g].window == 0 && block_pool_find(pool, hash) == KV_NO_BLOCK &&
            name_queue_find(&pool->tier.blocks, hash) == KV_NO_BLOCK)
            return false;
    }
    return true;
}

uint32_t kv_cache_peek(const struct kv_cache *cache, const struct key256 *hashes, uint32_t n_hashes, uint32_t hint)
{
    uint32_t n = hint < n_hashes ? hint : n_hashes;
    while (n > 0 && !is_cached(cache, &hashes[n - 1]))
        n /= 2;
    while (n < n_hashes && is_cached(cache, &hashes[n]))
        n++;
    return n;
}
