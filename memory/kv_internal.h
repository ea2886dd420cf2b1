/* What kv_cache.c and kv_table.c share; nobody else includes it. */
#ifndef QUIRE_MEMORY_KV_INTERNAL_H
#define QUIRE_MEMORY_KV_INTERNAL_H

#include "memory/block_pool.h"
#include "memory/kv_cache.h"

struct kv_cache {
    struct kv_config config;
    struct block_pool pools[KV_MAX_GROUPS];
    struct kv_table *tables; /* all of them, for kv_cache_check */
};

/* One group's part of a table: [0, first_held) are KV_NO_BLOCK, [first_held, n) are referenced. */
struct kv_span {
    uint32_t *blocks;
    uint32_t n, capacity, first_held;
};

struct kv_table {
    struct kv_cache *cache;
    struct kv_table *prev, *next;
    struct kv_span spans[KV_MAX_GROUPS];
};

/* Blocks that hold positions [0, n_tokens). */
static inline uint32_t kv_ceil_blocks(uint32_t n_tokens, uint32_t block_tokens)
{
    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

/* The first block that a position >= `position` can read. */
static inline uint32_t kv_first_needed(uint32_t window, uint32_t block_tokens, uint32_t position)
{
    if (window == 0 || position < window)
        return 0;
    return (position - window + 1) / block_tokens;
}

#endif
