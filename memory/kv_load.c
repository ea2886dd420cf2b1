/* Loads the part of a prefix that is only on the host.
 *
 * Loading goes over the blocks three times. First it counts, so that the load is all or nothing. Then it holds every
 * block: it takes references on the blocks on the device and detaches the others from the host tier's queue. This is
 * necessary because taking device blocks afterwards moves other blocks to the host, which must not evict these. Last,
 * every host block gets a device block.
 */
#include "memory/kv_internal.h"
#include "memory/kv_table.h"

#include <assert.h>

/* Marks a table entry as a host block (at most 2^30) between the second and the third pass. */
#define ON_HOST (1u << 31)

uint32_t kv_table_loadable(const struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes,
                           uint32_t max_tokens)
{
    const struct kv_cache *cache = table->cache;
    uint32_t from = table->spans[0].n, limit = max_tokens / cache->config.block_tokens;
    if (limit > n_hashes)
        limit = n_hashes;
    if (cache->ledger.capacity == 0 || limit <= from)
        return 0;
    return (kv_longest_prefix(cache, hashes, from, limit, true) - from) * cache->config.block_tokens;
}

/* Counts the blocks that only this table holds and that the window leaves behind at block `needed`. */
static uint32_t count_left(const struct kv_table *table, uint32_t group, uint32_t needed)
{
    const struct kv_span *span = &table->spans[group];
    uint32_t n = 0, kept = kv_kept(&table->cache->config, group);
    for (uint32_t i = span->first_held > kept ? span->first_held : kept; i < span->n && i < needed; i++)
        n += table->cache->pools[group].blocks[span->blocks[i]].refs == 1;
    return n;
}

/* Adds the number of blocks that a group must load to *n_loads. Blocks that the window leaves behind count as free,
 * because a sequence that has the group to itself must always fit. */
static int count_loads(const struct kv_table *table, uint32_t group, const struct key256 *hashes, uint32_t n,
                       uint32_t *n_loads)
{
    const struct kv_config *config = &table->cache->config;
    const struct block_pool *pool = &table->cache->pools[group];
    uint32_t needed = kv_first_needed(config, group, n * config->block_tokens), kept = kv_kept(config, group);
    uint32_t n_host = 0, n_revived = 0, n_free = pool->n_free + count_left(table, group, needed);
    for (uint32_t i = table->spans[group].n; i < n; i++) {
        if (i >= kept && i < needed)
            continue;
        uint32_t block = block_pool_find(pool, &hashes[i]);
        if (block != KV_NO_BLOCK)
            n_revived += pool->blocks[block].refs == 0;
        else if (name_queue_find(&pool->tier->blocks, &hashes[i]) != KV_NO_BLOCK)
            n_host++;
        else
            return QUIRE_NOT_FOUND;
    }
    *n_loads += n_host;
    return n_host > n_free - n_revived ? QUIRE_EXHAUSTED : QUIRE_OK;
}

static void hold(struct kv_table *table, uint32_t group, const struct key256 *hashes, uint32_t n)
{
    const struct kv_config *config = &table->cache->config;
    struct block_pool *pool = &table->cache->pools[group];
    struct kv_span *span = &table->spans[group];
    uint32_t n_tokens = n * config->block_tokens;
    uint32_t needed = kv_first_needed(config, group, n_tokens), kept = kv_kept(config, group);
    kv_trim_window(table, group, n_tokens);
    for (; span->n < n; span->n++) {
        if (span->n >= kept && span->n < needed) {
            span->blocks[span->n] = KV_NO_BLOCK;
            span->first_held = span->n + 1;
            continue;
        }
        const struct key256 *hash = &hashes[span->n];
        uint32_t block = block_pool_find(pool, hash);
        if (block != KV_NO_BLOCK) {
            block_pool_ref(pool, block);
        } else {
            uint32_t slot = name_queue_find(&pool->tier->blocks, hash);
            assert(slot != KV_NO_BLOCK);
            name_queue_detach(&pool->tier->blocks, slot);
            block = slot | ON_HOST;
        }
        span->blocks[span->n] = block;
    }
}

static void fetch(struct kv_table *table, uint32_t group, const struct key256 *hashes, uint32_t from)
{
    struct kv_span *span = &table->spans[group];
    for (uint32_t i = from; i < span->n; i++)
        if (span->blocks[i] != KV_NO_BLOCK && span->blocks[i] & ON_HOST)
            span->blocks[i] = block_pool_load(&table->cache->pools[group], span->blocks[i] & ~ON_HOST, &hashes[i]);
}

int kv_table_load(struct kv_table *table, const struct key256 *hashes, uint32_t n_tokens)
{
    struct kv_cache *cache = table->cache;
    uint32_t from = table->spans[0].n, n = from + n_tokens / cache->config.block_tokens;
    uint32_t n_loads = 0, n_groups = cache->config.n_groups;
    assert(n_tokens % cache->config.block_tokens == 0);
    for (uint32_t g = 0; g < n_groups; g++) {
        int status = count_loads(table, g, hashes, n, &n_loads);
        if (status)
            return status;
    }
    if (n_loads > (cache->ledger.capacity - cache->ledger.n_moves) / 2)
        return QUIRE_EXHAUSTED;
    int status = kv_grow_all(table, n);
    if (status)
        return status;
    for (uint32_t g = 0; g < n_groups; g++)
        hold(table, g, hashes, n);
    for (uint32_t g = 0; g < n_groups; g++)
        fetch(table, g, hashes, from);
    table->n_hit = n;
    KV_CHECKED(cache);
    return QUIRE_OK;
}
