/* Finds how much of a prefix is cached without taking references. Used by the functions that take it and by policies
 * that rank requests. */
#include "memory/kv_internal.h"

/* Look-ups whose loads are under way. */
#define LOOK_AHEAD 8u

static bool is_cached(const struct kv_cache *cache, const struct key256 *hash)
{
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const struct block_pool *pool = &cache->pools[g];
        if (cache->config.groups[g].window == 0 && block_pool_find(pool, hash) == KV_NO_BLOCK &&
            name_queue_find(&pool->tier->blocks, hash) == KV_NO_BLOCK)
            return false;
    }
    return true;
}

uint32_t kv_cache_peek(const struct kv_cache *cache, const struct key256 *hashes, uint32_t n_hashes, uint32_t hint)
{
    uint32_t n = hint < n_hashes ? hint : n_hashes;
    kv_settle(cache);
    while (n > 0 && !is_cached(cache, &hashes[n - 1]))
        n /= 2;
    while (n < n_hashes && is_cached(cache, &hashes[n]))
        n++;
    return n;
}

static bool has(const struct block_pool *pool, const struct key256 *hash, bool host_too)
{
    return block_pool_find(pool, hash) != KV_NO_BLOCK ||
           (host_too && name_queue_find(&pool->tier->blocks, hash) != KV_NO_BLOCK);
}

/* Returns the largest n <= limit such that every windowed group still has the blocks [first needed, n). The sinks'
 * blocks are known to exist. Looks up each
 * block of a group at most once: the blocks [lo, n) are known to exist. */
static uint32_t match_windows(const struct kv_cache *cache, const struct key256 *hashes, uint32_t limit, bool host_too)
{
    const struct kv_config *config = &cache->config;
    uint32_t lo[KV_MAX_GROUPS] = {limit, limit, limit, limit};
    uint32_t n = limit;
    for (uint32_t g = 0; g < config->n_groups;) {
        uint32_t needed = kv_first_needed(config, g, n * config->block_tokens);
        if (lo[g] > n)
            lo[g] = n;
        while (config->groups[g].window && lo[g] > needed && has(&cache->pools[g], &hashes[lo[g] - 1], host_too))
            lo[g]--;
        if (config->groups[g].window && lo[g] > needed) {
            n = lo[g] - 1; /* nothing longer works; the groups before this one must look again */
            g = 0;
        } else {
            g++;
        }
    }
    return n;
}

uint32_t kv_longest_prefix(const struct kv_cache *cache, const struct key256 *hashes, uint32_t from, uint32_t limit,
                           bool host_too)
{
    uint32_t n = limit;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        uint32_t i = from, kept = kv_kept(&cache->config, g);
        uint32_t end = cache->config.groups[g].window && kept < n ? kept : n; /* blocks that every prefix needs */
        if (cache->config.groups[g].window && kept == 0)
            continue;
        for (; i < end && has(&cache->pools[g], &hashes[i], host_too); i++)
            if (i + LOOK_AHEAD < end)
                block_pool_prefetch_find(&cache->pools[g], &hashes[i + LOOK_AHEAD]);
        if (i < end)
            n = i;
    }
    return match_windows(cache, hashes, n, host_too);
}
