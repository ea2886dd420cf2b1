#include "memory/block_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int block_pool_init(struct block_pool *pool, const struct kv_config *config, uint32_t group, struct kv_ledger *ledger)
{
    uint32_t n_blocks = config->groups[group].n_blocks;
    bool reuse = config->eviction == KV_EVICT_REUSE;
    memset(pool, 0, sizeof *pool);
    pool->blocks = calloc(n_blocks, sizeof *pool->blocks);
    if (reuse)
        pool->due = calloc(n_blocks, sizeof *pool->due);
    int status = pool->blocks && (pool->due || !reuse) ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (!status)
        status = prefix_index_init(&pool->names, n_blocks);
    if (!status)
        status = host_tier_init(&pool->tier, group, config->groups[group].n_host_blocks, reuse ? n_blocks : 0, ledger);
    if (status) {
        block_pool_free(pool);
        return status;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        pool->blocks[i].prev = i > 0 ? i - 1 : KV_NO_BLOCK;
        pool->blocks[i].next = i + 1 < n_blocks ? i + 1 : KV_NO_BLOCK;
    }
    pool->n_blocks = pool->n_free = n_blocks;
    pool->n_lists = reuse ? 1 + KV_MOST_USES : 2;
    pool->lists[0] = (struct pool_list){.head = 0, .tail = n_blocks - 1};
    for (uint32_t i = 1; i < pool->n_lists; i++)
        pool->lists[i] = (struct pool_list){.head = KV_NO_BLOCK, .tail = KV_NO_BLOCK};
    return QUIRE_OK;
}

void block_pool_free(struct block_pool *pool)
{
    prefix_index_free(&pool->names);
    host_tier_free(&pool->tier);
    free(pool->due);
    free(pool->blocks);
    memset(pool, 0, sizeof *pool);
}

/* Returns the list of a free block. */
static uint32_t list_of(const struct block_pool *pool, uint32_t block)
{
    if (!pool->names.entries[block].named)
        return 0;
    return pool->due ? pool->blocks[block].label.uses : 1;
}

static void unlink_free(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    uint32_t at = list_of(pool, block);
    struct pool_list *list = &pool->lists[at];
    if (b->prev != KV_NO_BLOCK)
        pool->blocks[b->prev].next = b->next;
    else
        list->head = b->next;
    if (b->next != KV_NO_BLOCK)
        pool->blocks[b->next].prev = b->prev;
    else
        list->tail = b->prev;
    pool->n_free--;
    pool->n_cached_free -= at > 0;
}

static void link_blank(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    struct pool_list *list = &pool->lists[0];
    b->prev = KV_NO_BLOCK;
    b->next = list->head;
    if (list->head != KV_NO_BLOCK)
        pool->blocks[list->head].prev = block;
    else
        list->tail = block;
    list->head = block;
    pool->n_free++;
}

static void link_cached(struct block_pool *pool, uint32_t block)
{
    struct pool_block *b = &pool->blocks[block];
    struct pool_list *list = &pool->lists[list_of(pool, block)];
    if (pool->due)
        pool->due[block] = pool->clock + (uint64_t)(b->label.uses - 1) * pool->n_blocks / 2;
    b->prev = list->tail;
    b->next = KV_NO_BLOCK;
    if (list->tail != KV_NO_BLOCK)
        pool->blocks[list->tail].next = block;
    else
        list->head = block;
    list->tail = block;
    pool->n_free++;
    pool->n_cached_free++;
}

/* Returns the block to take next. */
static uint32_t cheapest(const struct block_pool *pool)
{
    uint32_t best = pool->lists[0].head;
    if (best != KV_NO_BLOCK)
        return best;
    best = pool->lists[1].head;
    for (uint32_t i = 2; i < pool->n_lists; i++) {
        uint32_t head = pool->lists[i].head;
        if (head != KV_NO_BLOCK && (best == KV_NO_BLOCK || pool->due[head] < pool->due[best]))
            best = head;
    }
    return best;
}

uint32_t block_pool_take(struct block_pool *pool)
{
    uint32_t block = cheapest(pool);
    if (block == KV_NO_BLOCK)
        return KV_NO_BLOCK;
    struct prefix_entry *entry = &pool->names.entries[block];
    unlink_free(pool, block);
    if (entry->named) {
        prefix_index_remove(&pool->names, block);
        host_tier_give_up(&pool->tier, block, &entry->hash, pool->blocks[block].label);
    }
    pool->blocks[block].refs = 1;
    pool->clock++;
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
        link_cached(pool, block);
    else
        link_blank(pool, block);
}

uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash)
{
    return prefix_index_find(&pool->names, hash);
}

void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash, uint32_t owner)
{
    struct kv_label *label = &pool->blocks[block].label;
    assert(pool->blocks[block].refs > 0);
    if (pool->names.entries[block].named || prefix_index_find(&pool->names, hash) != KV_NO_BLOCK)
        return;
    *label = (struct kv_label){.owner = owner, .uses = host_tier_take_back(&pool->tier, hash)};
    block_pool_used(pool, block);
    prefix_index_insert(&pool->names, block, hash);
}

uint32_t block_pool_load(struct block_pool *pool, uint32_t host_block, const struct key256 *hash)
{
    uint32_t block = block_pool_take(pool);
    pool->blocks[block].label = pool->tier.blocks.slots[host_block].label;
    host_tier_load(&pool->tier, host_block, block);
    prefix_index_insert(&pool->names, block, hash);
    return block;
}

void block_pool_used(struct block_pool *pool, uint32_t block)
{
    struct kv_label *label = &pool->blocks[block].label;
    assert(pool->blocks[block].refs > 0);
    label->uses += label->uses < KV_MOST_USES;
}

/* Appends the blocks of list `from` to the blank blocks. */
static void blank_list(struct block_pool *pool, struct pool_list *from)
{
    struct pool_list *blank = &pool->lists[0];
    if (from->head == KV_NO_BLOCK)
        return;
    pool->blocks[from->head].prev = blank->tail;
    if (blank->tail != KV_NO_BLOCK)
        pool->blocks[blank->tail].next = from->head;
    else
        blank->head = from->head;
    blank->tail = from->tail;
    *from = (struct pool_list){.head = KV_NO_BLOCK, .tail = KV_NO_BLOCK};
}

void block_pool_drop_cached(struct block_pool *pool)
{
    for (uint32_t i = 1; i < pool->n_lists; i++) {
        for (uint32_t b = pool->lists[i].head; b != KV_NO_BLOCK; b = pool->blocks[b].next) {
            prefix_index_remove(&pool->names, b);
            host_tier_lose(&pool->tier, &pool->names.entries[b].hash, pool->blocks[b].label);
        }
        blank_list(pool, &pool->lists[i]);
    }
    pool->n_cached_free = 0;
    host_tier_drop(&pool->tier);
}

static int check_list(const struct block_pool *pool, uint32_t list, uint32_t *n, struct quire_error *err)
{
    uint32_t group = pool->tier.group, prev = KV_NO_BLOCK;
    for (uint32_t b = pool->lists[list].head; b != KV_NO_BLOCK; b = pool->blocks[b].next) {
        if (b >= pool->n_blocks || ++*n > pool->n_blocks)
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: free list is broken", group);
        if (pool->blocks[b].prev != prev)
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: block %u has a wrong back link", group, b);
        if (pool->blocks[b].refs != 0)
            return quire_fail(err, QUIRE_INTERNAL, "kv 1: group %u: block %u is free and referenced", group, b);
        if (list_of(pool, b) != list)
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: block %u is on list %u, belongs on %u", group, b,
                              list, list_of(pool, b));
        if (list > 0 && prev != KV_NO_BLOCK && pool->due && pool->due[b] < pool->due[prev])
            return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: block %u is due too early", group, b);
        prev = b;
    }
    if (pool->lists[list].tail != prev)
        return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: list %u ends at block %u, not %u", group, list, prev,
                          pool->lists[list].tail);
    return QUIRE_OK;
}

static int check_lists(const struct block_pool *pool, struct quire_error *err)
{
    uint32_t n_free = 0, n_blank = 0;
    for (uint32_t i = 0; i < pool->n_lists; i++) {
        int status = check_list(pool, i, &n_free, err);
        if (status)
            return status;
        if (i == 0)
            n_blank = n_free;
    }
    if (n_free != pool->n_free || n_free - n_blank != pool->n_cached_free)
        return quire_fail(err, QUIRE_INTERNAL, "kv 3: group %u: %u free, %u cached on the lists, counted %u and %u",
                          pool->tier.group, n_free, n_free - n_blank, pool->n_free, pool->n_cached_free);
    return QUIRE_OK;
}

static int check_names(const struct block_pool *pool, struct quire_error *err)
{
    uint32_t group = pool->tier.group, n_named = 0, n_indexed = 0;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct key256 *name = &pool->names.entries[b].hash;
        if (!pool->names.entries[b].named)
            continue;
        n_named++;
        if (prefix_index_find(&pool->names, name) != b)
            return quire_fail(err, QUIRE_INTERNAL, "kv 4: group %u: block %u is not what its name finds", group, b);
        if (name_queue_find(&pool->tier.blocks, name) != KV_NO_BLOCK ||
            name_queue_find(&pool->tier.history, name) != KV_NO_BLOCK)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: the name of block %u is also below the pool", group,
                              b);
    }
    for (uint32_t i = 0; i <= pool->names.mask; i++)
        for (uint32_t b = pool->names.buckets[i]; b != KV_NO_BLOCK; b = pool->names.entries[b].next)
            if (++n_indexed > pool->n_blocks)
                break;
    if (n_indexed != n_named)
        return quire_fail(err, QUIRE_INTERNAL, "kv 4: group %u: %u named blocks, %u in the index", group, n_named,
                          n_indexed);
    return QUIRE_OK;
}

int block_pool_check(const struct block_pool *pool, struct quire_error *err)
{
    uint32_t n_referenced = 0;
    int status = check_lists(pool, err);
    if (!status)
        status = check_names(pool, err);
    if (!status)
        status = host_tier_check(&pool->tier, err);
    if (status)
        return status;
    for (uint32_t b = 0; b < pool->n_blocks; b++)
        n_referenced += pool->blocks[b].refs > 0;
    if (n_referenced + pool->n_free != pool->n_blocks)
        return quire_fail(err, QUIRE_INTERNAL, "kv 1: group %u: %u referenced and %u free of %u", pool->tier.group,
                          n_referenced, pool->n_free, pool->n_blocks);
    return QUIRE_OK;
}
