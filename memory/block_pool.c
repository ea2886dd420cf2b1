#include "memory/block_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int block_pool_init(struct block_pool *pool, const struct kv_config *config, uint32_t group, struct kv_ledger *ledger)
{
    uint32_t n_blocks = config->groups[group].n_blocks;
    bool reuse = config->eviction == KV_EVICT_REUSE;
    memset(pool, 0, sizeof *pool);
    pool->blocks = kv_calloc_lines(n_blocks, sizeof *pool->blocks, &pool->block_memory);
    pool->tier = host_tier_create(group, config->groups[group].n_host_blocks, reuse ? n_blocks : 0, ledger);
    if (!pool->blocks || !pool->tier || prefix_index_init(&pool->names, n_blocks)) {
        block_pool_free(pool);
        return QUIRE_NO_MEMORY;
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
    host_tier_destroy(pool->tier);
    free(pool->block_memory);
    memset(pool, 0, sizeof *pool);
}

/* Returns whether the eviction is KV_EVICT_REUSE. */
static bool is_reuse(const struct block_pool *pool)
{
    return pool->n_lists > 2;
}

/* Returns the list of a free block. */
static uint32_t list_of(const struct block_pool *pool, uint32_t block)
{
    if (!pool->blocks[block].named)
        return 0;
    return is_reuse(pool) ? pool->blocks[block].label.uses : 1;
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
    if (is_reuse(pool))
        b->due = pool->clock + (uint64_t)(b->label.uses - 1) * pool->n_blocks / 2;
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
        if (head != KV_NO_BLOCK && (best == KV_NO_BLOCK || pool->blocks[head].due < pool->blocks[best].due))
            best = head;
    }
    return best;
}

/* Begins to load what the next eviction from that list reads, and the block of the one after it. */
static void prefetch_eviction(const struct block_pool *pool, uint32_t list)
{
    uint32_t block = pool->lists[list].head;
    if (block == KV_NO_BLOCK)
        return;
    if (pool->tier->blocks.n_slots > 0 || pool->tier->history.n_slots > 0)
        kv_prefetch(&pool->names.hashes[block]);
    if (pool->blocks[block].next != KV_NO_BLOCK)
        kv_prefetch(&pool->blocks[pool->blocks[block].next]);
}

static void remove_stale(struct block_pool *pool)
{
    for (uint32_t i = 0; i < pool->n_stale; i++)
        prefix_index_remove(&pool->names, pool->stale[i], pool->blocks[pool->stale[i]].tag);
    pool->n_stale = 0;
}

/* A free and cached block loses its name. */
static void evict(struct block_pool *pool, uint32_t block)
{
    if (pool->n_stale == POOL_MOST_STALE)
        remove_stale(pool);
    prefix_index_prefetch(&pool->names, pool->blocks[block].tag);
    pool->stale[pool->n_stale++] = block;
    pool->blocks[block].named = false;
}

uint32_t block_pool_take(struct block_pool *pool)
{
    uint32_t block = cheapest(pool);
    if (block == KV_NO_BLOCK)
        return KV_NO_BLOCK;
    struct pool_block *b = &pool->blocks[block];
    uint32_t list = list_of(pool, block);
    unlink_free(pool, block);
    prefetch_eviction(pool, list);
    if (b->named) {
        evict(pool, block);
        host_tier_give_up(pool->tier, block, &pool->names.hashes[block], b->label);
    }
    b->refs = 1;
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
    if (pool->blocks[block].named)
        link_cached(pool, block);
    else
        link_blank(pool, block);
}

uint32_t block_pool_find(const struct block_pool *pool, const struct key256 *hash)
{
    uint32_t block = prefix_index_find(&pool->names, hash);
    return block != KV_NO_BLOCK && pool->blocks[block].named ? block : KV_NO_BLOCK;
}

static void give_name(struct block_pool *pool, uint32_t block, const struct key256 *hash)
{
    pool->blocks[block].named = true;
    pool->blocks[block].tag = prefix_tag(hash);
    prefix_index_insert(&pool->names, block, hash);
}

void block_pool_name(struct block_pool *pool, uint32_t block, const struct key256 *hash, uint32_t owner)
{
    struct pool_block *b = &pool->blocks[block];
    assert(b->refs > 0);
    remove_stale(pool);
    if (b->named || prefix_index_find(&pool->names, hash) != KV_NO_BLOCK)
        return;
    b->label = (struct kv_label){.owner = owner, .uses = host_tier_take_back(pool->tier, hash)};
    block_pool_used(pool, block);
    give_name(pool, block, hash);
}

uint32_t block_pool_load(struct block_pool *pool, uint32_t host_block, const struct key256 *hash)
{
    uint32_t block = block_pool_take(pool);
    pool->blocks[block].label = pool->tier->blocks.slots[host_block].label;
    host_tier_load(pool->tier, host_block, block);
    remove_stale(pool);
    give_name(pool, block, hash);
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
            evict(pool, b);
            host_tier_lose(pool->tier, &pool->names.hashes[b], pool->blocks[b].label);
        }
        blank_list(pool, &pool->lists[i]);
    }
    pool->n_cached_free = 0;
    host_tier_drop(pool->tier);
}

static int check_list(const struct block_pool *pool, uint32_t list, uint32_t *n, struct quire_error *err)
{
    uint32_t group = pool->tier->group, prev = KV_NO_BLOCK;
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
        if (list > 0 && prev != KV_NO_BLOCK && is_reuse(pool) && pool->blocks[b].due < pool->blocks[prev].due)
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
                          pool->tier->group, n_free, n_free - n_blank, pool->n_free, pool->n_cached_free);
    return QUIRE_OK;
}

static int check_names(const struct block_pool *pool, struct quire_error *err)
{
    uint32_t group = pool->tier->group, n_named = 0, n_indexed = prefix_index_count(&pool->names) - pool->n_stale;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct key256 *name = &pool->names.hashes[b];
        if (!pool->blocks[b].named)
            continue;
        n_named++;
        if (block_pool_find(pool, name) != b || pool->blocks[b].tag != prefix_tag(name))
            return quire_fail(err, QUIRE_INTERNAL, "kv 4: group %u: block %u is not what its name finds", group, b);
        if (name_queue_find(&pool->tier->blocks, name) != KV_NO_BLOCK ||
            name_queue_find(&pool->tier->history, name) != KV_NO_BLOCK)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: the name of block %u is also below the pool", group,
                              b);
    }
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
        status = host_tier_check(pool->tier, err);
    if (status)
        return status;
    for (uint32_t b = 0; b < pool->n_blocks; b++)
        n_referenced += pool->blocks[b].refs > 0;
    if (n_referenced + pool->n_free != pool->n_blocks)
        return quire_fail(err, QUIRE_INTERNAL, "kv 1: group %u: %u referenced and %u free of %u", pool->tier->group,
                          n_referenced, pool->n_free, pool->n_blocks);
    return QUIRE_OK;
}
