/* Every allocation of the KV cache fails once: the call reports it, the invariants hold, and the next call works. */
#include "tests/fault.h"
#include "tests/memory/kv_fixture.h"

#include <stdbool.h>

static struct kv_config two_groups(enum kv_eviction eviction)
{
    return (struct kv_config){
        .block_tokens = 4,
        .n_groups = 2,
        .prefix_caching = true,
        .eviction = eviction,
        .n_tenants = 2,
        .groups = {{.n_blocks = 8, .n_host_blocks = 16}, {.n_blocks = 8, .n_host_blocks = 16, .window = 6}}};
}

static void test_create(void **state)
{
    (void)state;
    for (enum kv_eviction e = KV_EVICT_LRU; e <= KV_EVICT_REUSE; e++) {
        const struct kv_config config = two_groups(e);
        struct kv_cache *cache;
        long n = 0;
        for (;; n++) {
            struct quire_error err = {.text = ""};
            fault_at(n);
            int status = kv_cache_create(&config, &cache, &err);
            if (!fault_end()) {
                assert_int_equal(status, QUIRE_OK);
                break;
            }
            assert_int_equal(status, QUIRE_NO_MEMORY);
            assert_null(cache);
            assert_non_null(strstr(err.text, "memory"));
        }
        assert_true(n > 10);
        assert_sound(cache);
        kv_cache_destroy(cache);
    }
}

static uint32_t n_held(const struct kv_table *table)
{
    return kv_table_held(table, 0) + kv_table_held(table, 1);
}

/* A table that grows: by reservation, by a hit, by a share, by a load from the host tier. */
enum growth { RESERVE, MATCH, SHARE, LOAD, PREPARE, N_GROWTHS };

static int grow_by(enum growth how, const struct kv_table *from, struct kv_table *to)
{
    switch (how) {
    case RESERVE: return kv_table_reserve(to, 0, 8);
    case MATCH: return match(to, 2, 0, 8) == 8 ? QUIRE_OK : QUIRE_NO_MEMORY;
    case SHARE: return kv_table_share(from, 2, to);
    case LOAD: return kv_table_load(to, hashes_of(0), 8);
    default: return kv_table_prepare(to, 8);
    }
}

static void grow_with_faults(enum growth how)
{
    const struct kv_config config = two_groups(KV_EVICT_LRU);
    struct kv_cache *cache;
    assert_int_equal(kv_cache_create(&config, &cache, NULL), QUIRE_OK);
    struct kv_table *from = open_table(cache);
    fill(from, 4, 2, 0);
    if (how == LOAD) { /* other names take all device blocks, so that these are on the host */
        kv_table_clear(from);
        struct kv_table *other = open_table(cache);
        fill(other, 4, 8, 16);
        kv_table_destroy(other);
    }
    struct kv_table *to = NULL;
    long n = 0;
    for (;; n++) {
        fault_at(n);
        int status = to ? QUIRE_OK : kv_table_create(cache, &to, NULL);
        if (status == QUIRE_OK)
            status = grow_by(how, from, to);
        bool failed = fault_end();
        assert_sound(cache);
        if (!failed) {
            assert_int_equal(status, QUIRE_OK);
            break;
        }
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_true(!to || n_held(to) == 0);
        kv_table_destroy(to);
        to = NULL;
    }
    assert_int_equal(n, 3); /* the table, and its blocks in two groups */
    assert_int_equal(n_held(to), how == PREPARE ? 0 : 4);
    kv_table_destroy(to);
    kv_table_destroy(from);
    assert_sound(cache);
    kv_cache_destroy(cache);
}

static void test_growth(void **state)
{
    (void)state;
    for (enum growth how = RESERVE; how < N_GROWTHS; how++)
        grow_with_faults(how);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_create), cmocka_unit_test(test_growth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
