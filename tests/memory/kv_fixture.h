/* Helpers for the tests of the KV cache. Blocks hold 4 tokens. Names are numbers. */
#ifndef QUIRE_TESTS_MEMORY_KV_FIXTURE_H
#define QUIRE_TESTS_MEMORY_KV_FIXTURE_H

#include "memory/kv_cache.h"
#include "memory/kv_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURE_NAMES 32

static inline struct key256 hash_of(uint32_t name)
{
    struct key256 key = {{0}};
    memcpy(key.bytes, &name, sizeof name);
    return key;
}

/* Returns the names base, base + 1, … */
static inline const struct key256 *hashes_of(uint32_t base)
{
    static struct key256 hashes[FIXTURE_NAMES];
    for (uint32_t i = 0; i < FIXTURE_NAMES; i++)
        hashes[i] = hash_of(base + i);
    return hashes;
}

static inline struct kv_table *open_table(struct kv_cache *cache)
{
    struct kv_table *table;
    assert_int_equal(kv_table_create(cache, &table, NULL), QUIRE_OK);
    return table;
}

static inline uint32_t block_at(const struct kv_table *table, uint32_t group, uint32_t index)
{
    uint32_t n;
    const uint32_t *blocks = kv_table_blocks(table, group, &n);
    assert_true(index < n);
    return blocks[index];
}

static inline void assert_sound(const struct kv_cache *cache)
{
    struct quire_error err = {.text = ""};
    if (kv_cache_check(cache, &err))
        fail_msg("%s", err.text);
}

/* Computes and publishes n blocks named base, base + 1, … */
static inline void fill(struct kv_table *table, uint32_t block_tokens, uint32_t n, uint32_t base)
{
    for (uint32_t i = 0; i < n; i++) {
        struct key256 hash = hash_of(base + i);
        assert_int_equal(kv_table_reserve(table, i * block_tokens, (i + 1) * block_tokens), QUIRE_OK);
        kv_table_publish(table, i, &hash);
    }
}

static inline uint32_t match(struct kv_table *table, uint32_t n, uint32_t base, uint32_t max_tokens)
{
    return kv_table_match(table, hashes_of(base), n, max_tokens);
}

#endif
