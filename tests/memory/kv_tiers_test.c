/* The host tier, evictions and owners: one test for each rule of memory/kv_cache.h. */
#include "tests/memory/kv_fixture.h"

#define BT 4

static struct kv_cache *open_tiers(uint32_t n_blocks, uint32_t n_host_blocks, enum kv_eviction eviction)
{
    struct kv_config config = {
        .block_tokens = BT, .n_groups = 1, .prefix_caching = true, .eviction = eviction, .n_tenants = 3};
    struct kv_cache *cache;
    config.groups[0].n_blocks = n_blocks;
    config.groups[0].n_host_blocks = n_host_blocks;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    return cache;
}

/* Computes n blocks named base, base + 1, … and releases them. */
static void serve(struct kv_table *t, uint32_t n, uint32_t base)
{
    fill(t, BT, n, base);
    kv_table_clear(t);
}

/* Takes n blocks and releases them without a name. */
static void push_out(struct kv_table *t, uint32_t n)
{
    assert_int_equal(kv_table_reserve(t, 0, n * BT), QUIRE_OK);
    kv_table_clear(t);
}

static uint32_t loadable(const struct kv_table *t, uint32_t n, uint32_t base)
{
    return kv_table_loadable(t, hashes_of(base), n, UINT32_MAX);
}

static int load(struct kv_table *t, uint32_t n, uint32_t base)
{
    return kv_table_load(t, hashes_of(base), n * BT);
}

/* Returns how many blocks of [base, base + n) are on the device. They count as used last. */
static uint32_t cached(struct kv_table *t, uint32_t n, uint32_t base)
{
    uint32_t n_hit = match(t, n, base, UINT32_MAX) / BT;
    kv_table_clear(t);
    return n_hit;
}

static void assert_move(const struct kv_cache *cache, uint32_t at, bool to_host, uint32_t device_block,
                        uint32_t host_block)
{
    uint32_t n;
    const struct kv_move *moves = kv_cache_moves(cache, &n);
    assert_true(at < n);
    assert_int_equal(moves[at].group, 0);
    assert_int_equal(moves[at].to_host, to_host);
    assert_int_equal(moves[at].device_block, device_block);
    assert_int_equal(moves[at].host_block, host_block);
}

static uint32_t n_moves(const struct kv_cache *cache)
{
    uint32_t n;
    kv_cache_moves(cache, &n);
    return n;
}

static void close_tiers(struct kv_cache *cache, struct kv_table *t)
{
    assert_sound(cache);
    kv_table_destroy(t);
    assert_sound(cache);
    kv_cache_destroy(cache);
}

static void test_bad_config(void **state)
{
    (void)state;
    struct kv_config good = {.block_tokens = 16, .n_groups = 1}, bad;
    struct kv_cache *cache;
    struct quire_error err;
    good.groups[0].n_blocks = 4;
    bad = good;
    bad.groups[0].n_host_blocks = 1;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "prefix_caching"));
    bad.prefix_caching = true;
    bad.groups[0].n_host_blocks = UINT32_MAX;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "n_host_blocks"));
    bad = good;
    bad.eviction = (enum kv_eviction)2;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "eviction"));
    bad = good;
    bad.n_tenants = UINT32_MAX;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "n_tenants"));
}

static void test_what_is_given_up_moves_to_the_host(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    fill(t, BT, 3, 100);
    uint32_t tail = block_at(t, 0, 2), middle = block_at(t, 0, 1);
    kv_table_clear(t);
    assert_int_equal(n_moves(cache), 0);
    push_out(t, 3); /* one blank block, then the tail first */
    assert_int_equal(n_moves(cache), 2);
    assert_move(cache, 0, true, tail, 0);
    assert_move(cache, 1, true, middle, 1);
    struct kv_usage usage = kv_cache_usage(cache, 0);
    assert_int_equal(usage.n_host_blocks, 8);
    assert_int_equal(usage.n_host_used, 2);
    assert_int_equal(usage.n_spilled, 2);
    assert_int_equal(usage.n_evicted, 0); /* nothing is lost */
    kv_cache_clear_moves(cache);
    assert_int_equal(n_moves(cache), 0);
    close_tiers(cache, t);
}

static void test_load_brings_blocks_back(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 3, 100);
    push_out(t, 3);
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 3, 100, UINT32_MAX), BT);
    assert_int_equal(kv_table_loadable(t, hashes_of(100), 3, 3 * BT - 1), BT);
    assert_int_equal(kv_table_loadable(t, hashes_of(100), 2, UINT32_MAX), BT);
    assert_int_equal(loadable(t, 5, 100), 2 * BT);
    assert_int_equal(n_moves(cache), 0); /* the query takes nothing */
    assert_int_equal(load(t, 2, 100), QUIRE_OK);
    assert_int_equal(n_moves(cache), 2);
    assert_move(cache, 0, false, block_at(t, 0, 1), 1);
    assert_move(cache, 1, false, block_at(t, 0, 2), 0);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 0); /* it is in one place only */
    assert_int_equal(kv_cache_usage(cache, 0).n_loaded, 2);
    kv_table_clear(t);
    assert_int_equal(cached(t, 3, 100), 3);
    close_tiers(cache, t);
}

static void test_a_match_without_load_leaves_nothing(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 3, 100);
    push_out(t, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(match(t, 3, 100, UINT32_MAX), BT);
        assert_int_equal(loadable(t, 3, 100), 2 * BT);
        kv_table_clear(t);
    }
    assert_int_equal(n_moves(cache), 2);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 2);
    close_tiers(cache, t);
}

static void test_load_is_all_or_nothing(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache), *other = open_table(cache);
    serve(t, 4, 100);
    push_out(t, 4);
    assert_int_equal(kv_table_reserve(other, 0, BT), QUIRE_OK);
    assert_int_equal(match(t, 4, 100, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 4, 100), 4 * BT);
    assert_int_equal(load(t, 4, 100), QUIRE_EXHAUSTED);
    assert_int_equal(kv_table_held(t, 0), 0);
    assert_int_equal(n_moves(cache), 4);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 4);
    assert_int_equal(load(t, 5, 100), QUIRE_NOT_FOUND);
    assert_int_equal(load(t, 3, 100), QUIRE_EXHAUSTED); /* 4 of the 8 moves are left; 6 are needed */
    kv_cache_clear_moves(cache);
    assert_int_equal(load(t, 3, 100), QUIRE_OK);
    kv_table_destroy(other);
    close_tiers(cache, t);
}

/* A load must also keep the free device blocks that hold other parts of its prefix; they do not count as free. */
static void test_load_counts_the_blocks_it_revives(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache), *other = open_table(cache);
    serve(t, 1, 100);
    push_out(t, 4);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 1);
    /* Blocks 101 and 102 are cached, 100 is on the host, one block is taken, one is blank. */
    assert_int_equal(kv_table_reserve(t, 0, 3 * BT), QUIRE_OK);
    kv_table_publish(t, 1, &hashes_of(100)[1]);
    kv_table_publish(t, 2, &hashes_of(100)[2]);
    kv_table_clear(t);
    assert_int_equal(kv_table_reserve(other, 0, BT), QUIRE_OK);
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 3, 100, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 3, 100), 3 * BT);
    assert_int_equal(kv_table_reserve(other, 0, 2 * BT), QUIRE_OK);
    assert_int_equal(load(t, 3, 100), QUIRE_EXHAUSTED);
    kv_table_clear(other);
    assert_int_equal(load(t, 3, 100), QUIRE_OK);
    assert_int_equal(n_moves(cache), 1);
    assert_int_equal(kv_table_held(t, 0), 3);
    kv_table_destroy(other);
    close_tiers(cache, t);
}

/* Loaded blocks fill the host tier, and each device block taken for them moves another block to the host. */
static void test_a_load_does_not_push_out_its_own_blocks(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(3, 3, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 3, 100);
    serve(t, 3, 200);
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 3, 100, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 3, 100), 3 * BT);
    assert_int_equal(load(t, 3, 100), QUIRE_OK);
    kv_table_clear(t);
    assert_int_equal(cached(t, 3, 100), 3);
    /* The first block taken had no space on the host; the others used the space that the load left. */
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 1);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 2);
    assert_int_equal(n_moves(cache), 5);
    assert_int_equal(match(t, 3, 200, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 3, 200), 2 * BT);
    close_tiers(cache, t);
}

static void test_the_host_gives_up_its_oldest(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 2, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 3, 100);
    push_out(t, 4); /* 102 and 101 came first, then 100 replaced 102 */
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 1);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 2);
    assert_int_equal(match(t, 3, 100, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 3, 100), 2 * BT);
    close_tiers(cache, t);
}

static void test_computed_anew_drops_the_host_copy(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 2, 100);
    push_out(t, 4);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 2);
    serve(t, 1, 100);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 1);
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 0);
    assert_int_equal(cached(t, 1, 100), 1);
    close_tiers(cache, t);
}

/* The ledger holds two copies per device block: its old content moves out and other content moves in. */
static void test_past_the_space_for_moves_nothing_spills(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(1, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    for (uint32_t i = 0; i < 4; i++)
        serve(t, 1, 100 + i);
    assert_int_equal(n_moves(cache), 2);
    assert_int_equal(kv_cache_usage(cache, 0).n_spilled, 2);
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 1);
    kv_cache_clear_moves(cache);
    serve(t, 1, 200);
    assert_int_equal(n_moves(cache), 1);
    assert_int_equal(loadable(t, 1, 103), BT);
    assert_int_equal(loadable(t, 1, 102), 0);
    close_tiers(cache, t);
}

/* Window 6, blocks of 4: position 24 reads from 19, in block 4. */
static void test_load_with_a_window(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = BT, .n_groups = 2, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = config.groups[1].n_blocks = 6;
    config.groups[0].n_host_blocks = config.groups[1].n_host_blocks = 6;
    config.groups[1].window = 6;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *t = open_table(cache);
    serve(t, 6, 100);
    push_out(t, 6);
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 6, 100, UINT32_MAX), 0);
    assert_int_equal(loadable(t, 6, 100), 6 * BT);
    assert_int_equal(load(t, 6, 100), QUIRE_OK);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_not_equal(block_at(t, 0, i), KV_NO_BLOCK);
        assert_int_equal(block_at(t, 1, i) == KV_NO_BLOCK, i < 4);
    }
    assert_int_equal(kv_cache_usage(cache, 0).n_loaded, 6);
    assert_int_equal(kv_cache_usage(cache, 1).n_loaded, 2);
    close_tiers(cache, t);
}

/* Releases the hit blocks that are behind the longer prefix's window. */
static void test_load_moves_a_window_on(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = BT, .n_groups = 1, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = 6;
    config.groups[0].n_host_blocks = 6;
    config.groups[0].window = 6;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *t = open_table(cache);
    assert_int_equal(kv_table_reserve(t, 0, 6 * BT), QUIRE_OK);
    for (uint32_t i = 0; i < 6; i++)
        kv_table_publish(t, i, &hashes_of(100)[i]);
    kv_table_clear(t);
    push_out(t, 4); /* the tail: 105 to 102 */
    assert_int_equal(match(t, 6, 100, UINT32_MAX), 2 * BT);
    assert_int_equal(kv_table_held(t, 0), 2);
    assert_int_equal(loadable(t, 6, 100), 4 * BT);
    assert_int_equal(load(t, 4, 100), QUIRE_OK);
    assert_int_equal(kv_table_held(t, 0), 2);
    assert_int_equal(kv_cache_usage(cache, 0).n_loaded, 2);
    assert_int_equal(block_at(t, 0, 3), KV_NO_BLOCK);
    assert_int_not_equal(block_at(t, 0, 4), KV_NO_BLOCK);
    close_tiers(cache, t);
}

/* Window 9, blocks of 4, 3 blocks in the pool, which is what one sequence needs. The blocks of the hit must make space
 * for the loaded blocks. */
static void test_load_uses_what_its_window_leaves(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = BT, .n_groups = 1, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = 3;
    config.groups[0].n_host_blocks = 8;
    config.groups[0].window = 9;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *t = open_table(cache);
    fill(t, BT, 6, 100);
    kv_table_clear(t);
    kv_cache_clear_moves(cache);
    push_out(t, 3); /* all are on the host */
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 3, 100, UINT32_MAX), 0);
    assert_int_equal(load(t, 3, 100), QUIRE_OK);
    kv_table_clear(t);
    kv_cache_clear_moves(cache);
    assert_int_equal(match(t, 6, 100, UINT32_MAX), 3 * BT);
    assert_int_equal(kv_cache_usage(cache, 0).n_free, 1);
    assert_int_equal(loadable(t, 6, 100), 3 * BT);
    assert_int_equal(load(t, 3, 100), QUIRE_OK);
    assert_int_equal(kv_table_held(t, 0), 2);
    close_tiers(cache, t);
}

static void test_drop_cached_clears_both_tiers(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(4, 8, KV_EVICT_REUSE);
    struct kv_table *t = open_table(cache);
    serve(t, 4, 100);
    push_out(t, 2);
    kv_cache_drop_cached(cache);
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 0);
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 0);
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 4);
    assert_int_equal(loadable(t, 4, 100), 0);
    close_tiers(cache, t);
}

static void test_losses_are_counted_for_the_owner(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(2, 2, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    kv_table_set_owner(t, 1);
    serve(t, 2, 100);
    kv_table_set_owner(t, 2);
    serve(t, 2, 200);
    assert_int_equal(kv_cache_evicted(cache, 1), 0); /* on the host */
    kv_cache_clear_moves(cache);
    serve(t, 2, 300);
    assert_int_equal(kv_cache_evicted(cache, 1), 2);
    kv_cache_drop_cached(cache);
    assert_int_equal(kv_cache_evicted(cache, 0), 0);
    assert_int_equal(kv_cache_evicted(cache, 2), 4);
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 6);
    close_tiers(cache, t);
}

/* Checks without a tier and without taking references. */
static bool is_cached(const struct kv_cache *cache, uint32_t name)
{
    return kv_cache_peek(cache, hashes_of(name), 1, 1) == 1;
}

/* Hits block `name`, continues with a blank block and releases both. */
static void hit(struct kv_table *t, uint32_t name)
{
    assert_int_equal(match(t, 1, name, BT), BT);
    assert_int_equal(kv_table_reserve(t, BT, 2 * BT), QUIRE_OK);
    kv_table_clear(t);
}

static void test_a_hit_keeps_a_block_for_half_a_pool(void **state)
{
    (void)state;
    for (int reuse = 0; reuse <= 1; reuse++) {
        struct kv_cache *cache = open_tiers(8, 0, reuse ? KV_EVICT_REUSE : KV_EVICT_LRU);
        struct kv_table *t = open_table(cache);
        serve(t, 1, 100);
        hit(t, 100);
        for (uint32_t i = 0; i < 10; i++) /* 7 go into blank blocks, then the oldest are evicted */
            serve(t, 1, 200 + i);
        assert_int_equal(is_cached(cache, 100), reuse);
        assert_int_equal(is_cached(cache, 202), !reuse);
        serve(t, 1, 300);
        serve(t, 1, 301);
        assert_false(is_cached(cache, 100)); /* due 4 blocks later than without the hit */
        close_tiers(cache, t);
    }
}

static void test_a_hit_that_is_given_back_does_not_count(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(8, 0, KV_EVICT_REUSE);
    struct kv_table *t = open_table(cache);
    serve(t, 1, 100);
    assert_int_equal(cached(t, 1, 100), 1);
    for (uint32_t i = 0; i < 8; i++)
        serve(t, 1, 200 + i);
    assert_false(is_cached(cache, 100));
    close_tiers(cache, t);
}

static void test_lost_names_are_remembered(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(8, 0, KV_EVICT_REUSE);
    struct kv_table *t = open_table(cache);
    serve(t, 1, 100);
    for (uint32_t i = 0; i < 8; i++)
        serve(t, 1, 200 + i);
    serve(t, 1, 100); /* its second use counts like a hit */
    for (uint32_t i = 0; i < 10; i++)
        serve(t, 1, 300 + i);
    assert_true(is_cached(cache, 100));
    close_tiers(cache, t);
}

/* Holds for any number of earlier hits. */
static void test_what_is_not_hit_again_leaves(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(8, 0, KV_EVICT_REUSE);
    struct kv_table *t = open_table(cache);
    serve(t, 1, 100);
    for (int i = 0; i < 20; i++)
        hit(t, 100);
    for (uint32_t i = 0; i < 8 * 5 / 2; i++)
        serve(t, 1, 200 + i);
    assert_false(is_cached(cache, 100));
    close_tiers(cache, t);
}

static void test_peek(void **state)
{
    (void)state;
    struct kv_cache *cache = open_tiers(8, 8, KV_EVICT_LRU);
    struct kv_table *t = open_table(cache);
    serve(t, 5, 100);
    for (uint32_t hint = 0; hint <= 9; hint++)
        assert_int_equal(kv_cache_peek(cache, hashes_of(100), 8, hint), 5);
    assert_int_equal(kv_cache_peek(cache, hashes_of(100), 3, 5), 3);
    push_out(t, 5); /* 104 and 103 are on the host */
    assert_int_equal(kv_cache_usage(cache, 0).n_host_used, 2);
    for (uint32_t hint = 0; hint <= 9; hint++)
        assert_int_equal(kv_cache_peek(cache, hashes_of(100), 8, hint), 5);
    fill(t, BT, 2, 200);
    assert_int_equal(kv_cache_peek(cache, hashes_of(200), 8, 0), 2); /* at once */
    kv_table_clear(t);
    close_tiers(cache, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_what_is_given_up_moves_to_the_host),
        cmocka_unit_test(test_load_brings_blocks_back),
        cmocka_unit_test(test_a_match_without_load_leaves_nothing),
        cmocka_unit_test(test_load_is_all_or_nothing),
        cmocka_unit_test(test_load_counts_the_blocks_it_revives),
        cmocka_unit_test(test_a_load_does_not_push_out_its_own_blocks),
        cmocka_unit_test(test_the_host_gives_up_its_oldest),
        cmocka_unit_test(test_computed_anew_drops_the_host_copy),
        cmocka_unit_test(test_past_the_space_for_moves_nothing_spills),
        cmocka_unit_test(test_load_with_a_window),
        cmocka_unit_test(test_load_moves_a_window_on),
        cmocka_unit_test(test_load_uses_what_its_window_leaves),
        cmocka_unit_test(test_drop_cached_clears_both_tiers),
        cmocka_unit_test(test_losses_are_counted_for_the_owner),
        cmocka_unit_test(test_a_hit_keeps_a_block_for_half_a_pool),
        cmocka_unit_test(test_a_hit_that_is_given_back_does_not_count),
        cmocka_unit_test(test_lost_names_are_remembered),
        cmocka_unit_test(test_what_is_not_hit_again_leaves),
        cmocka_unit_test(test_peek),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
