#include "memory/block_pool.h"

#include "memory/kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int block_pool_init(struct block_pool *pool, uint32_t n_blocks)
{
    memset(pool, 0, sizeof *pool);
    pool->blocks = calloc(n_blocks, sizeof *pool->blocks);
    if (!pool->blocks)
        return QUIRE_NO_MEMORY;
    int status = prefix_index_init(&pool->names, n_blocks);
    if (status) {
        block_pool_free(pool);
        return status;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        pool->blocks[i].prev = i > 0 ? i - 1 : KV_NO_BLOCK;
        pool->blocks[i].next = i + 1 < n_blocks ? i + 1 : KV_NO_BLOCK;
    }
    pool->n_blocks = pool->n_free = n_blocks;
    pool->tail = n_blocks - 1;
    return QUIRE_OK;
}

void block_pool_free(struct block_pool *pool)
{
    prefix_index_free(&pool->names);
    free(pool->blocks);
    memset(pool, 0, sizeof *pool);
}

static void unlink_free(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    if (b->prev != KV_NO_BLOCK)
        pool->blocks[b->prev].next = b->next;
    else
        pool->head = b->next;
    if (b->next != KV_NO_BLOCK)
        pool->blocks[b->next].prev = b->prev;
    else
        pool->tail = b->prev;
    pool->n_free--;
    if (pool->names.entries[block].named)
        pool->n_cached_free--;
}

static void link_front(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    b->prev = KV_NO_BLOCK;
    b->next = pool->head;
    if (pool->head != KV_NO_BLOCK)
        pool->blocks[pool->head].prev = block;
    else
        pool->tail = block;
    pool->head = block;
    pool->n_free++;
}

static void link_back(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    b->prev = pool->tail;
    b->next = KV_NO_BLOCK;
    if (pool->tail != KV_NO_BLOCK)
        pool->blocks[pool->tail].next = block;
    else
        pool->head = block;
    pool->tail = block;
    pool->n_free++;
    pool->n_cached_free++;
}

uint32_t block_pool_take(struct block_pool *pool)
{
    uint32_t block = pool->head;
    if (block == KV_NO_BLOCK)
        return KV_NO_BLOCK;
    unlink_free(pool, block);
    if (pool->names.entries[block].named) {
        prefix_index_remove(&pool->names, block);
        pool->n_evicted++;
    }
    pool->blocks[block].refs = 1;
    return block;
}

void block_pool_ref(struct block_pool *pool, uint32_t block)
{
    if (pool->blocks[block].refs == 0)
        unlink_free(pool, block);
    pool->blocks[block].refs++;
}

void block_pool_unref(struct block_pool *pool, uint32_t block)
{
    assert(pool->blocks[block].refs > 0);
    if (--pool->blocks[block].refs > 0)
        return;
    if (pool->names.entries[block].named)
        link_back(pool, block);
    else
        link_front(pool, block);
}

uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash)
{
    return prefix_index_find(&pool->names, hash);
}

void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash)
{
    assert(pool->blocks[block].refs > 0);
    if (pool->names.entries[block].named ||
        prefix_index_find(&pool->names, hash) != KV_NO_BLOCK)
        return;
    prefix_index_insert(&pool->names, block, hash);
}

void block_pool_drop_cached(struct block_pool *pool)
{
    for (uint32_t b = pool->head; b != KV_NO_BLOCK; b = pool->blocks[b].next) {
        if (!pool->names.entries[b].named)
            continue;
        prefix_index_remove(&pool->names, b);
        pool->n_evicted++;
    }
    pool->n_cached_free = 0;
}

static int check_free_list(const struct block_pool *pool, uint32_t group, struct quire_error *err)
{
    uint32_t n_free = 0, n_cached = 0, prev = KV_NO_BLOCK;
    for (uint32_t b = pool->head; b != KV_NO_BLOCK; b = pool->blocks[b].next) {
        if (b >= pool->n_blocks || ++n_free > pool->n_blocks)
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: free list is broken", group);
        if (pool->blocks[b].prev != prev)
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: block %u has a wrong back link",
                              group, b);
        if (pool->blocks[b].refs != 0)
            return quire_fail(err, QUIRE_INTERNAL,
                              "kv 1: group %u: block %u is free and referenced", group, b);
        if (pool->names.entries[b].named)
            n_cached++;
        else if (n_cached > 0)
            return quire_fail(err, QUIRE_INTERNAL,
                              "kv 3: group %u: blank block %u stands behind a cached one", group,
                              b);
        prev = b;
    }
    if (pool->tail != prev || n_free != pool->n_free || n_cached != pool->n_cached_free)
        return quire_fail(err, QUIRE_INTERNAL,
                          "kv 3: group %u: %u free, %u cached on the list, counted %u and %u",
                          group, n_free, n_cached, pool->n_free, pool->n_cached_free);
    return QUIRE_OK;
}

int block_pool_check(const struct block_pool *pool, uint32_t group, struct quire_error *err)
{
    int status = check_free_list(pool, group, err);
    if (status)
        return status;
    uint32_t n_referenced = 0, n_named = 0, n_indexed = 0;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        n_referenced += pool->blocks[b].refs > 0;
        if (!pool->names.entries[b].named)
            continue;
        n_named++;
        if (prefix_index_find(&pool->names, &pool->names.entries[b].hash) != b)
            return quire_fail(err, QUIRE_INTERNAL,
                              "kv 4: group %u: block %u is not what its name finds", group, b);
    }
    for (uint32_t i = 0; i <= pool->names.mask; i++)
        for (uint32_t b = pool->names.buckets[i]; b != KV_NO_BLOCK; b = pool->names.entries[b].next)
            if (++n_indexed > pool->n_blocks)
                break;
    if (n_indexed != n_named)
        return quire_fail(err, QUIRE_INTERNAL, "kv 4: group %u: %u named blocks, %u in the index",
                          group, n_named, n_indexed);
    if (n_referenced + pool->n_free != pool->n_blocks)
        return quire_fail(err, QUIRE_INTERNAL, "kv 1: group %u: %u referenced and %u free of %u",
                          group, n_referenced, pool->n_free, pool->n_blocks);
    return QUIRE_OK;
}
