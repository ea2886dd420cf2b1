
#include "memory/kv_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Keeps every sum or double of block counts within 32 bits. */
#define MAX_BLOCKS (1u << 30)

static int check_host_blocks(const struct kv_config *config, struct quire_error *err)
{
    for (uint32_t g = 0; g < config->n_groups; g++) {
        uint32_t n = config->groups[g].n_host_blocks;
        if (n > MAX_BLOCKS)
            return quire_fail(err, QUIRE_INVALID, "kv cache: group %u: n_host_blocks must be at most %u, got %u", g,
                              MAX_BLOCKS, n);
        if (n > 0 && !config->prefix_caching)
            return quire_fail(err, QUIRE_INVALID, "kv cache: group %u: n_host_blocks needs prefix_caching", g);
    }
    return QUIRE_OK;
}

static int check_config(const struct kv_config *config, struct quire_error *err)
{
    if (config->block_tokens == 0 || config->block_tokens > MAX_BLOCKS)
        return quire_fail(err, QUIRE_INVALID, "kv cache: block_tokens must be 1 to %u, got %u", MAX_BLOCKS,
                          config->block_tokens);
    if (config->n_groups == 0 || config->n_groups > KV_MAX_GROUPS)
        return quire_fail(err, QUIRE_INVALID, "kv cache: n_groups must be 1 to %d, got %u", KV_MAX_GROUPS,
                          config->n_groups);
    for (uint32_t g = 0; g < config->n_groups; g++)
        if (config->groups[g].n_blocks == 0 || config->groups[g].n_blocks > MAX_BLOCKS)
            return quire_fail(err, QUIRE_INVALID, "kv cache: group %u: n_blocks must be 1 to %u, got %u", g, MAX_BLOCKS,
                              config->groups[g].n_blocks);
    for (uint32_t g = 0; g < config->n_groups; g++)
        if (config->groups[g].sinks > 0 && config->groups[g].window == 0)
            return quire_fail(err, QUIRE_INVALID, "kv cache: group %u: sinks need a window", g);
    if (config->eviction > KV_EVICT_REUSE)
        return quire_fail(err, QUIRE_INVALID, "kv cache: eviction %d does not exist", (int)config->eviction);
    if (config->n_tenants > KV_MAX_TENANTS)
        return quire_fail(err, QUIRE_INVALID, "kv cache: n_tenants must be at most %u, got %u", KV_MAX_TENANTS,
                          config->n_tenants);
    return check_host_blocks(config, err);
}

/* Allocates space for two copies of each device block that has a host tier: when a step takes the block, its old
 * content is saved, and other content may be loaded into it. A step takes a block once, unless an admission fails after
 * it took some. */
static int open_ledger(struct kv_cache *cache)
{
    const struct kv_config *config = &cache->config;
    struct kv_ledger *ledger = &cache->ledger;
    uint64_t capacity = 0;
    for (uint32_t g = 0; g < config->n_groups; g++)
        if (config->groups[g].n_host_blocks > 0)
            capacity += 2 * (uint64_t)config->groups[g].n_blocks;
    ledger->n_evicted = calloc(config->n_tenants, sizeof *ledger->n_evicted);
    if (!ledger->n_evicted)
        return QUIRE_NO_MEMORY;
    if (capacity == 0)
        return QUIRE_OK;
    if (capacity > UINT32_MAX)
        return QUIRE_NO_MEMORY;
    ledger->moves = calloc((size_t)capacity, sizeof *ledger->moves);
    ledger->capacity = (uint32_t)capacity;
    return ledger->moves ? QUIRE_OK : QUIRE_NO_MEMORY;
}

int kv_cache_create(const struct kv_config *config, struct kv_cache **out, struct quire_error *err)
{
    *out = NULL;
    int status = check_config(config, err);
    if (status)
        return status;
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return quire_fail(err, QUIRE_NO_MEMORY, "kv cache: out of memory");
    cache->config = *config;
    if (config->n_tenants == 0)
        cache->config.n_tenants = 1;
    status = open_ledger(cache);
    cache->pools = calloc(config->n_groups, sizeof *cache->pools);
    if (status || !cache->pools) {
        kv_cache_destroy(cache);
        return quire_fail(err, QUIRE_NO_MEMORY, "kv cache: out of memory for moves and tenants");
    }
    uint32_t most = 0;
    for (uint32_t g = 0; g < config->n_groups; g++)
        most = config->groups[g].n_blocks > most ? config->groups[g].n_blocks : most;
    cache->counts = calloc(most, sizeof *cache->counts);
    cache->pending = calloc(1, sizeof *cache->pending);
    if (!cache->counts || !cache->pending) {
        kv_cache_destroy(cache);
        return quire_fail(err, QUIRE_NO_MEMORY, "kv cache: out of memory for %u blocks", most);
    }
    for (uint32_t g = 0; g < config->n_groups; g++) {
        status = block_pool_init(&cache->pools[g], config, g, &cache->ledger);
        if (status) {
            kv_cache_destroy(cache);
            return quire_fail(err, status, "kv cache: group %u: out of memory for %u blocks", g,
                              config->groups[g].n_blocks);
        }
    }
    *out = cache;
    return QUIRE_OK;
}

void kv_cache_destroy(struct kv_cache *cache)
{
    if (!cache)
        return;
    assert(!cache->tables);
    for (uint32_t g = 0; cache->pools && g < cache->config.n_groups; g++)
        block_pool_free(&cache->pools[g]);
    free(cache->pools);
    free(cache->ledger.moves);
    free(cache->ledger.n_evicted);
    free(cache->counts);
    free(cache->pending);
    free(cache);
}

struct kv_usage kv_cache_usage(const struct kv_cache *cache, uint32_t group)
{
    const struct block_pool *pool = &cache->pools[group];
    kv_settle(cache);
    return (struct kv_usage){.n_blocks = pool->n_blocks,
                             .n_free = pool->n_free,
                             .n_cached_free = pool->n_cached_free,
                             .n_evicted = pool->tier->n_lost,
                             .n_host_blocks = pool->tier->blocks.n_slots,
                             .n_host_used = pool->tier->blocks.n_queued,
                             .n_spilled = pool->tier->n_spilled,
                             .n_loaded = pool->tier->n_loaded};
}

uint64_t kv_cache_evicted(const struct kv_cache *cache, uint32_t tenant)
{
    assert(tenant < cache->config.n_tenants);
    return cache->ledger.n_evicted[tenant];
}

const struct kv_move *kv_cache_moves(const struct kv_cache *cache, uint32_t *n_moves)
{
    *n_moves = cache->ledger.n_moves;
    return cache->ledger.moves;
}

void kv_cache_clear_moves(struct kv_cache *cache)
{
    cache->ledger.n_moves = 0;
    KV_CHECKED(cache);
}

uint32_t kv_blocks_needed(const struct kv_config *config, uint32_t group, uint32_t n_tokens, uint32_t chunk)
{
    uint32_t all = kv_ceil_blocks(n_tokens, config->block_tokens);
    uint32_t window = config->groups[group].window;
    if (window == 0)
        return all;
    /* Before a step that starts at position p, the table reaches from p - window + 1 to p + chunk. It holds that many
     * positions, at any alignment to block edges. */
    uint64_t span = (uint64_t)window + chunk - 1;
    uint64_t most = (span + 2 * (uint64_t)config->block_tokens - 2) / config->block_tokens + kv_kept(config, group);
    return most < all ? (uint32_t)most : all;
}

void kv_cache_drop_cached(struct kv_cache *cache)
{
    kv_settle(cache);
    for (uint32_t g = 0; g < cache->config.n_groups; g++)
        block_pool_drop_cached(&cache->pools[g]);
    KV_CHECKED(cache);
}
