/* Block tables: the blocks that one sequence holds in each group.
 *
 *   entry   0 … kept-1           kept … first_held-1   first_held … n-1
 *           one reference each   KV_NO_BLOCK           one reference each
 *           the sinks            behind the window     readable, being written, or reserved
 *
 * In a group with full attention first_held stays 0. Without sinks kept is 0.
 */
#include "memory/kv_internal.h"
#include "memory/kv_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Blocks whose loads are under way while one is released. */
#define RELEASE_AHEAD 8u

int kv_table_create(struct kv_cache *cache, struct kv_table **out, struct quire_error *err)
{
    *out = NULL;
    void *memory;
    struct kv_table *table = kv_calloc_lines(1, sizeof *table, &memory);
    if (!table)
        return quire_fail(err, QUIRE_NO_MEMORY, "block table: out of memory");
    table->memory = memory;
    table->cache = cache;
    table->next = cache->tables;
    if (cache->tables)
        cache->tables->prev = table;
    cache->tables = table;
    *out = table;
    return QUIRE_OK;
}

/* Releases the blocks from index n on, tail first. */
static void release_from(struct kv_table *table, uint32_t group, uint32_t n)
{
    struct block_pool *pool = &table->cache->pools[group];
    struct kv_span *span = &table->spans[group];
    uint32_t end = n > span->first_held ? n : span->first_held;
    for (uint32_t i = span->n; i > end && i + RELEASE_AHEAD > span->n; i--)
        block_pool_prefetch(pool, span->blocks[i - 1]);
    while (span->n > end) {
        if (span->n > end + RELEASE_AHEAD)
            block_pool_prefetch(pool, span->blocks[span->n - 1 - RELEASE_AHEAD]);
        block_pool_unref(pool, span->blocks[--span->n]);
    }
}

static void clear(struct kv_table *table)
{
    kv_settle(table->cache);
    for (uint32_t g = 0; g < table->cache->config.n_groups; g++) {
        struct kv_span *span = &table->spans[g];
        release_from(table, g, 0);
        if (span->n > 0) { /* blocks are missing: the sinks' are left */
            span->n = kv_kept(&table->cache->config, g);
            span->first_held = 0;
            release_from(table, g, 0);
        }
        span->n = span->first_held = 0;
    }
    table->n_hit = 0;
}

void kv_table_destroy(struct kv_table *table)
{
    if (!table)
        return;
    clear(table);
    if (table->prev)
        table->prev->next = table->next;
    else
        table->cache->tables = table->next;
    if (table->next)
        table->next->prev = table->prev;
    for (uint32_t g = 0; g < table->cache->config.n_groups; g++)
        free(table->spans[g].blocks);
    KV_CHECKED(table->cache);
    free(table->memory);
}

static bool is_empty(const struct kv_table *table)
{
    for (uint32_t g = 0; g < table->cache->config.n_groups; g++)
        if (table->spans[g].n > 0)
            return false;
    return true;
}

static int grow(struct kv_span *span, uint32_t n_entries)
{
    if (n_entries <= span->capacity)
        return QUIRE_OK;
    uint64_t capacity = (uint64_t)span->capacity * 2;
    if (capacity < n_entries)
        capacity = n_entries;
    if (capacity > UINT32_MAX || capacity > SIZE_MAX / sizeof *span->blocks)
        return QUIRE_NO_MEMORY;
    uint32_t *blocks = realloc(span->blocks, (size_t)capacity * sizeof *blocks);
    if (!blocks)
        return QUIRE_NO_MEMORY;
    span->blocks = blocks;
    span->capacity = (uint32_t)capacity;
    return QUIRE_OK;
}

int kv_grow_all(struct kv_table *table, uint32_t n_entries)
{
    for (uint32_t g = 0; g < table->cache->config.n_groups; g++) {
        int status = grow(&table->spans[g], n_entries);
        if (status)
            return status;
    }
    return QUIRE_OK;
}

int kv_table_prepare(struct kv_table *table, uint32_t n_tokens)
{
    return kv_grow_all(table, kv_ceil_blocks(n_tokens, table->cache->config.block_tokens));
}

uint32_t kv_table_match(struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes, uint32_t max_tokens)
{
    struct kv_cache *cache = table->cache;
    const struct kv_config *config = &cache->config;
    uint32_t n = max_tokens / config->block_tokens;
    assert(is_empty(table));
    if (n > n_hashes)
        n = n_hashes;
    if (!config->prefix_caching)
        return 0;
    kv_settle(cache);
    n = kv_longest_prefix(cache, hashes, 0, n, false);
    if (n == 0 || kv_grow_all(table, n))
        return 0;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        struct kv_span *span = &table->spans[g];
        uint32_t kept = kv_kept(config, g);
        span->n = n;
        span->first_held = kv_first_needed(config, g, n * config->block_tokens);
        for (uint32_t i = 0; i < n; i++) {
            span->blocks[i] = KV_NO_BLOCK;
            if (!kv_is_held(span, kept, i))
                continue;
            span->blocks[i] = block_pool_find(&cache->pools[g], &hashes[i]);
            block_pool_ref(&cache->pools[g], span->blocks[i]);
        }
    }
    table->n_hit = n;
    KV_CHECKED(cache);
    return n * config->block_tokens;
}

void kv_trim_window(struct kv_table *table, uint32_t group, uint32_t n_computed)
{
    const struct kv_config *config = &table->cache->config;
    struct kv_span *span = &table->spans[group];
    uint32_t needed = kv_first_needed(config, group, n_computed), kept = kv_kept(config, group);
    uint32_t i = span->first_held > kept ? span->first_held : kept;
    for (; i < needed && i < span->n; i++) {
        block_pool_unref(&table->cache->pools[group], span->blocks[i]);
        span->blocks[i] = KV_NO_BLOCK;
        span->first_held = i + 1;
    }
}

/* Counts hits as uses once the table continues from them. A hit that is released at once, because the rest did not fit,
 * does not count. */
static void count_hits(struct kv_table *table)
{
    struct kv_cache *cache = table->cache;
    for (uint32_t g = 0; g < cache->config.n_groups; g++)
        for (uint32_t i = 0, kept = kv_kept(&cache->config, g); i < table->n_hit; i++)
            if (kv_is_held(&table->spans[g], kept, i))
                block_pool_used(&cache->pools[g], table->spans[g].blocks[i]);
    table->n_hit = 0;
}

int kv_table_reserve(struct kv_table *table, uint32_t n_computed, uint32_t n_tokens)
{
    struct kv_cache *cache = table->cache;
    uint32_t n_groups = cache->config.n_groups;
    uint32_t n = kv_ceil_blocks(n_tokens, cache->config.block_tokens);
    kv_settle(cache);
    for (uint32_t g = 0; g < n_groups; g++)
        kv_trim_window(table, g, n_computed);
    for (uint32_t g = 0; g < n_groups; g++)
        if (n > table->spans[g].n && n - table->spans[g].n > cache->pools[g].n_free)
            return QUIRE_EXHAUSTED;
    int status = kv_grow_all(table, n);
    if (status)
        return status;
    for (uint32_t g = 0; g < n_groups; g++) {
        struct kv_span *span = &table->spans[g];
        while (span->n < n)
            span->blocks[span->n++] = block_pool_take(&cache->pools[g]);
    }
    if (table->n_hit > 0 && cache->config.eviction == KV_EVICT_REUSE)
        count_hits(table);
    KV_CHECKED(cache);
    return QUIRE_OK;
}

void kv_table_publish(struct kv_table *table, uint32_t index, const struct key256 *hash)
{
    struct kv_cache *cache = table->cache;
    if (!cache->config.prefix_caching)
        return;
    kv_pend(cache, table, index, hash);
    KV_CHECKED(cache);
}

int kv_table_share(const struct kv_table *from, uint32_t n_blocks, struct kv_table *to)
{
    struct kv_cache *cache = to->cache;
    const struct kv_config *config = &cache->config;
    assert(is_empty(to));
    for (uint32_t g = 0; g < config->n_groups; g++) {
        uint32_t needed = kv_first_needed(config, g, n_blocks * config->block_tokens), kept = kv_kept(config, g);
        if (needed < kept)
            needed = kept;
        if (from->spans[g].n < n_blocks || (from->spans[g].first_held > needed && needed < n_blocks))
            return QUIRE_NOT_FOUND;
    }
    int status = kv_grow_all(to, n_blocks);
    if (status)
        return status;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        struct kv_span *span = &to->spans[g];
        uint32_t kept = kv_kept(config, g);
        span->n = n_blocks;
        span->first_held = kv_first_needed(config, g, n_blocks * config->block_tokens);
        for (uint32_t i = 0; i < n_blocks; i++) {
            bool is_held = kv_is_held(span, kept, i);
            span->blocks[i] = is_held ? from->spans[g].blocks[i] : KV_NO_BLOCK;
            if (is_held)
                block_pool_ref(&cache->pools[g], span->blocks[i]);
        }
    }
    KV_CHECKED(cache);
    return QUIRE_OK;
}

void kv_table_set_owner(struct kv_table *table, uint32_t tenant)
{
    assert(tenant < table->cache->config.n_tenants);
    kv_settle(table->cache);
    table->owner = tenant;
}

void kv_table_cut(struct kv_table *table, uint32_t n_tokens)
{
    uint32_t n = kv_ceil_blocks(n_tokens, table->cache->config.block_tokens);
    for (uint32_t g = 0; g < table->cache->config.n_groups; g++)
        release_from(table, g, n);
    KV_CHECKED(table->cache);
}

void kv_table_clear(struct kv_table *table)
{
    clear(table);
    KV_CHECKED(table->cache);
}

const uint32_t *kv_table_blocks(const struct kv_table *table, uint32_t group, uint32_t *n_blocks)
{
    *n_blocks = table->spans[group].n;
    return table->spans[group].blocks;
}

uint32_t kv_table_held(const struct kv_table *table, uint32_t group)
{
    const struct kv_span *span = &table->spans[group];
    uint32_t kept = kv_kept(&table->cache->config, group);
    return span->first_held > kept ? span->n - (span->first_held - kept) : span->n;
}

uint32_t kv_table_shared(const struct kv_table *table, uint32_t group)
{
    const struct kv_span *span = &table->spans[group];
    uint32_t n = 0, kept = kv_kept(&table->cache->config, group);
    for (uint32_t i = 0; i < span->n; i++)
        if (kv_is_held(span, kept, i))
            n += table->cache->pools[group].blocks[span->blocks[i]].refs > 1;
    return n;
}
