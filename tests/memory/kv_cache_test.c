#include "tests/memory/kv_fixture.h"

static struct kv_cache *open_cache(uint32_t block_tokens, uint32_t n_blocks, uint32_t window)
{
    struct kv_config config = {.block_tokens = block_tokens, .n_groups = 1, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = n_blocks;
    if (window > 0) {
        config.n_groups = 2;
        config.groups[1].n_blocks = n_blocks;
        config.groups[1].window = window;
    }
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    return cache;
}

static void test_bad_config(void **state)
{
    (void)state;
    struct kv_config good = {.block_tokens = 16, .n_groups = 1}, bad;
    struct kv_cache *cache;
    struct quire_error err;
    good.groups[0].n_blocks = 4;
    bad = good;
    bad.block_tokens = 0;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "block_tokens"));
    bad = good;
    bad.n_groups = KV_MAX_GROUPS + 1;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "n_groups"));
    bad = good;
    bad.groups[0].n_blocks = UINT32_MAX;
    assert_int_equal(kv_cache_create(&bad, &cache, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "n_blocks"));
    assert_null(cache);
}

static void test_reserve_is_all_or_nothing(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 4, 0);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    uint32_t n;
    assert_int_equal(kv_table_reserve(a, 0, 9), QUIRE_OK);
    kv_table_blocks(a, 0, &n);
    assert_int_equal(n, 3);
    assert_int_equal(kv_table_reserve(b, 0, 5), QUIRE_EXHAUSTED);
    kv_table_blocks(b, 0, &n);
    assert_int_equal(n, 0);
    assert_int_equal(kv_cache_usage(cache, 0).n_free, 1);
    assert_int_equal(kv_table_reserve(b, 0, 4), QUIRE_OK);
    assert_int_equal(kv_table_reserve(a, 9, 12), QUIRE_OK); /* within its last block */
    assert_int_equal(kv_table_reserve(a, 12, 13), QUIRE_EXHAUSTED);
    assert_sound(cache);
    kv_table_destroy(a);
    kv_table_destroy(b);
    assert_int_equal(kv_cache_usage(cache, 0).n_free, 4);
    assert_sound(cache);
    kv_cache_destroy(cache);
}

static void test_match_takes_whole_blocks(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 16, 0);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    fill(a, 4, 5, 100);
    assert_int_equal(match(b, 5, 100, 19), 16);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(block_at(b, 0, i), block_at(a, 0, i));
    kv_table_clear(b);
    assert_int_equal(match(b, 3, 100, 100), 12);
    kv_table_clear(b);
    assert_int_equal(match(b, 5, 200, 100), 0);
    assert_int_equal(match(b, 5, 100, 3), 0);
    assert_sound(cache);
    kv_table_destroy(a);
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 5);
    assert_int_equal(match(b, 5, 100, 100), 20); /* cached blocks outlive their table */
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 0);
    kv_table_destroy(b);
    kv_cache_drop_cached(cache);
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 0);
    b = open_table(cache);
    assert_int_equal(match(b, 5, 100, 100), 0);
    kv_table_destroy(b);
    assert_sound(cache);
    kv_cache_destroy(cache);
}

static void test_tails_are_given_up_first(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 6, 0);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    fill(a, 4, 4, 100);
    kv_table_clear(a);
    /* Two blank blocks go first, then the tail of the cached sequence. */
    assert_int_equal(kv_table_reserve(b, 0, 12), QUIRE_OK);
    assert_int_equal(kv_cache_usage(cache, 0).n_evicted, 1);
    assert_int_equal(match(a, 4, 100, 100), 12);
    kv_table_destroy(a);
    kv_table_destroy(b);
    kv_cache_destroy(cache);
}

static void test_least_recently_used_goes_first(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 4, 0);
    struct kv_table *t = open_table(cache);
    fill(t, 4, 2, 100);
    kv_table_clear(t);
    fill(t, 4, 2, 200);
    kv_table_clear(t);
    assert_int_equal(match(t, 2, 100, 100), 8); /* used again, so 200 is now the oldest */
    kv_table_clear(t);
    assert_int_equal(kv_table_reserve(t, 0, 8), QUIRE_OK);
    kv_table_clear(t);
    assert_int_equal(match(t, 2, 200, 100), 0);
    assert_int_equal(match(t, 2, 100, 100), 8);
    kv_table_destroy(t);
    kv_cache_destroy(cache);
}

static void test_a_name_keeps_its_first_block(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 4, 0);
    struct kv_table *a = open_table(cache), *b = open_table(cache), *c = open_table(cache);
    struct key256 hash = hash_of(1), other = hash_of(2);
    kv_table_reserve(a, 0, 4);
    kv_table_reserve(b, 0, 4);
    kv_table_publish(a, 0, &hash);
    kv_table_publish(b, 0, &hash);
    kv_table_publish(a, 0, &other); /* a block also keeps its first name */
    assert_int_equal(match(c, 1, 1, 4), 4);
    assert_int_equal(block_at(c, 0, 0), block_at(a, 0, 0));
    kv_table_clear(c);
    assert_int_equal(match(c, 1, 2, 4), 0);
    assert_sound(cache);
    kv_table_destroy(a);
    kv_table_destroy(b);
    kv_table_destroy(c);
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 1);
    kv_cache_destroy(cache);
}

/* Window 6, blocks of 4: position p reads p - 5 … p. */
static void test_window_gives_back_what_is_behind(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 8, 6);
    struct kv_table *t = open_table(cache);
    assert_int_equal(kv_table_reserve(t, 0, 8), QUIRE_OK);
    assert_int_equal(kv_table_reserve(t, 8, 9), QUIRE_OK); /* 8 reads from 3 */
    assert_int_not_equal(block_at(t, 1, 0), KV_NO_BLOCK);
    assert_int_equal(kv_table_reserve(t, 9, 10), QUIRE_OK); /* 9 reads from 4 */
    assert_int_equal(block_at(t, 1, 0), KV_NO_BLOCK);
    assert_int_not_equal(block_at(t, 1, 1), KV_NO_BLOCK);
    assert_int_not_equal(block_at(t, 0, 0), KV_NO_BLOCK);
    assert_int_equal(kv_table_held(t, 0), 3);
    assert_int_equal(kv_table_held(t, 1), 2);
    assert_sound(cache);
    kv_table_destroy(t);
    kv_cache_destroy(cache);
}

static void test_match_needs_only_the_window(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 8, 6);
    struct kv_table *t = open_table(cache);
    fill(t, 4, 6, 100);
    kv_table_clear(t);
    assert_int_equal(match(t, 6, 100, 100), 24); /* 24 reads from 19 */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_not_equal(block_at(t, 0, i), KV_NO_BLOCK);
        assert_int_equal(block_at(t, 1, i) == KV_NO_BLOCK, i < 4);
    }
    assert_sound(cache);
    kv_table_destroy(t);
    kv_cache_destroy(cache);
}

/* The windowed group has lost block 3 of 6. 24 positions need blocks 4 and 5, which it has; 20 positions need block
 * 3. */
static void test_match_backs_off_to_what_all_groups_hold(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = 4, .n_groups = 2, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = 16;
    config.groups[1].n_blocks = 16;
    config.groups[1].window = 6;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *a = open_table(cache), *t = open_table(cache);
    assert_int_equal(kv_table_reserve(a, 0, 24), QUIRE_OK);
    for (uint32_t i = 0; i < 6; i++) {
        struct key256 hash = hash_of(100 + i);
        if (i != 3)
            kv_table_publish(a, i, &hash);
    }
    assert_int_equal(match(t, 6, 100, 24), 12); /* the full group stops at block 3 */
    kv_table_clear(t);
    /* Name block 3 in the full group only: trim the windowed group past it first. */
    assert_int_equal(kv_table_reserve(a, 24, 24), QUIRE_OK);
    struct key256 hash = hash_of(103);
    kv_table_publish(a, 3, &hash);
    assert_int_equal(match(t, 6, 100, 24), 24);
    kv_table_clear(t);
    assert_int_equal(match(t, 6, 100, 23), 12); /* 20 reads from 15, in block 3 */
    assert_sound(cache);
    kv_table_destroy(a);
    kv_table_destroy(t);
    kv_cache_destroy(cache);
}

static void test_share(void **state)
{
    (void)state;
    struct kv_cache *cache = open_cache(4, 8, 6);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    assert_int_equal(kv_table_reserve(a, 0, 12), QUIRE_OK);
    assert_int_equal(kv_table_share(a, 4, b), QUIRE_NOT_FOUND);
    assert_int_equal(kv_table_share(a, 3, b), QUIRE_OK);
    assert_int_equal(block_at(b, 0, 0), block_at(a, 0, 0));
    assert_int_equal(block_at(b, 1, 0), KV_NO_BLOCK);
    assert_int_equal(block_at(b, 1, 2), block_at(a, 1, 2));
    kv_table_clear(b);
    /* a continues until its window has left the blocks that position 8 reads. */
    assert_int_equal(kv_table_reserve(a, 17, 18), QUIRE_OK);
    assert_int_equal(kv_table_share(a, 2, b), QUIRE_NOT_FOUND);
    assert_sound(cache);
    kv_table_destroy(a);
    kv_table_destroy(b);
    kv_cache_destroy(cache);
}

/* The bound holds for every start, window and chunk, and some start reaches it. */
static void test_blocks_needed(void **state)
{
    (void)state;
    for (uint32_t bt = 1; bt <= 5; bt++)
        for (uint32_t window = 1; window <= 11; window++)
            for (uint32_t chunk = 1; chunk <= 9; chunk++) {
                struct kv_config config = {.block_tokens = bt, .n_groups = 1};
                uint32_t most = 0;
                config.groups[0].window = window;
                for (uint32_t p = 0; p < 100; p++) {
                    uint32_t low = p + 1 > window ? p + 1 - window : 0;
                    uint32_t held = (p + chunk - 1) / bt - low / bt + 1;
                    most = held > most ? held : most;
                }
                assert_int_equal(kv_blocks_needed(&config, 0, 1000, chunk), most);
                assert_true(kv_blocks_needed(&config, 0, 3, chunk) <= (3 + bt - 1) / bt);
                config.groups[0].window = 0;
                assert_int_equal(kv_blocks_needed(&config, 0, 1000, chunk), (1000 + bt - 1) / bt);
            }
}

/* Sinks add the blocks that hold them, and never more than all. */
static void test_blocks_needed_with_sinks(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = 4, .n_groups = 1};
    config.groups[0].window = 9;
    uint32_t alone = kv_blocks_needed(&config, 0, 1000, 5);
    config.groups[0].sinks = 5;
    assert_int_equal(kv_blocks_needed(&config, 0, 1000, 5), alone + 2);
    assert_int_equal(kv_blocks_needed(&config, 0, 13, 5), 4);
}

/* A table that runs on holds the sinks and the window, and a prefix is found while both are cached. */
static void test_sinks_stay(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = 4, .n_groups = 1, .prefix_caching = true};
    struct kv_cache *cache;
    config.groups[0].n_blocks = 8;
    config.groups[0].window = 8;
    config.groups[0].sinks = 5;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    for (uint32_t n = 0; n < 96; n++) {
        struct key256 hash = hash_of(100 + n / 4);
        assert_int_equal(kv_table_reserve(a, n, n + 1), QUIRE_OK);
        if (n % 4 == 3)
            kv_table_publish(a, n / 4, &hash);
        assert_true(kv_table_held(a, 0) <= kv_blocks_needed(&config, 0, 96, 1));
        assert_int_not_equal(block_at(a, 0, n < 4 ? 0 : 1), KV_NO_BLOCK);
    }
    assert_int_equal(kv_table_held(a, 0), 2 + 2); /* the last step, of position 95, read from 88 on */
    assert_int_equal(match(b, 24, 100, 96), 96);
    assert_int_equal(kv_table_held(b, 0), 2 + 2);
    assert_int_equal(block_at(b, 0, 1), block_at(a, 0, 1));
    assert_int_equal(block_at(b, 0, 2), KV_NO_BLOCK);
    assert_int_equal(kv_table_shared(b, 0), 4);
    kv_table_destroy(a);
    assert_int_equal(kv_cache_usage(cache, 0).n_free, 4);
    kv_table_destroy(b);
    assert_int_equal(kv_cache_usage(cache, 0).n_free, 8);
    assert_sound(cache);
    kv_cache_destroy(cache);
}

static void test_no_prefix_caching(void **state)
{
    (void)state;
    struct kv_config config = {.block_tokens = 4, .n_groups = 1};
    struct kv_cache *cache;
    config.groups[0].n_blocks = 8;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *a = open_table(cache), *b = open_table(cache);
    fill(a, 4, 3, 100);
    assert_int_equal(match(b, 3, 100, 100), 0);
    kv_table_destroy(a);
    assert_int_equal(kv_cache_usage(cache, 0).n_cached_free, 0);
    kv_table_destroy(b);
    kv_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_reserve_is_all_or_nothing),
        cmocka_unit_test(test_match_takes_whole_blocks),
        cmocka_unit_test(test_tails_are_given_up_first),
        cmocka_unit_test(test_least_recently_used_goes_first),
        cmocka_unit_test(test_a_name_keeps_its_first_block),
        cmocka_unit_test(test_window_gives_back_what_is_behind),
        cmocka_unit_test(test_match_needs_only_the_window),
        cmocka_unit_test(test_match_backs_off_to_what_all_groups_hold),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_blocks_needed),
        cmocka_unit_test(test_blocks_needed_with_sinks),
        cmocka_unit_test(test_sinks_stay),
        cmocka_unit_test(test_no_prefix_caching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
