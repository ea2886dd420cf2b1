/* kv_cache_check(): the invariants at the top of kv_cache.h, by number. Allocates nothing, so that a running engine and
 * the tests of failed allocations can call it. */
#include "memory/kv_internal.h"

#include <assert.h>
#include <string.h>

/* Counts, for every block of a group, the table entries that name it. */
static int check_references(const struct kv_cache *cache, uint32_t group, struct quire_error *err)
{
    const struct block_pool *pool = &cache->pools[group];
    uint32_t *counts = cache->counts;
    memset(counts, 0, pool->n_blocks * sizeof *counts);
    for (const struct kv_table *table = cache->tables; table; table = table->next) {
        const struct kv_span *span = &table->spans[group];
        uint32_t kept = kv_kept(&cache->config, group);
        for (uint32_t i = 0; i < span->n; i++) {
            uint32_t block = span->blocks[i];
            if ((block == KV_NO_BLOCK) == kv_is_held(span, kept, i))
                return quire_fail(err, QUIRE_INTERNAL, "kv 2: group %u: entry %u is on the wrong side of its window",
                                  group, i);
            if (block == KV_NO_BLOCK)
                continue;
            if (block >= pool->n_blocks)
                return quire_fail(err, QUIRE_INTERNAL, "kv 2: group %u: a table names block %u of %u", group, block,
                                  pool->n_blocks);
            counts[block]++;
        }
    }
    for (uint32_t b = 0; b < pool->n_blocks; b++)
        if (counts[b] != pool->blocks[b].refs)
            return quire_fail(err, QUIRE_INTERNAL, "kv 2: group %u: block %u has %u references and %u table entries",
                              group, b, pool->blocks[b].refs, counts[b]);
    return QUIRE_OK;
}

int kv_cache_check(const struct kv_cache *cache, struct quire_error *err)
{
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const struct block_pool *pool = &cache->pools[g];
        int status = block_pool_check(pool, err);
        if (status)
            return status;
        status = check_references(cache, g, err);
        if (status)
            return status;
        if (!cache->tables && pool->n_free != pool->n_blocks)
            return quire_fail(err, QUIRE_INTERNAL, "kv 5: group %u: %u of %u blocks free, no tables", g, pool->n_free,
                              pool->n_blocks);
    }
    return QUIRE_OK;
}

#ifdef QUIRE_DEBUG
/* A call checks about this many blocks on average. */
#define BLOCKS_PER_CALL 1024u

void kv_checked(struct kv_cache *cache, const char *function)
{
    struct quire_error err;
    uint64_t n_blocks = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++)
        n_blocks += (uint64_t)cache->config.groups[g].n_blocks + cache->config.groups[g].n_host_blocks;
    if ((uint64_t)++cache->n_unchecked * BLOCKS_PER_CALL < n_blocks)
        return;
    cache->n_unchecked = 0;
    if (kv_cache_check(cache, &err) != QUIRE_OK)
        __assert_fail(err.text, __FILE__, __LINE__, function);
}
#endif
