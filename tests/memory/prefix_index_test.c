/* The index of names against a list that is searched from its start. The tags are few and at the ends of their range,
 * so that buckets overflow, and the last one into the first. */
#include "base/status.h"
#include "memory/kv_cache.h"
#include "memory/prefix_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST_BLOCKS 200
#define N_HASHES 400

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) * n >> 31);
}

/* Hash i. Hashes with the same i % n_tags have the same tag. */
static struct key256 hash_of(uint32_t i, uint32_t n_tags)
{
    uint32_t tag = i % n_tags % 2 ? UINT32_MAX - i % n_tags : i % n_tags * 0x01010101u;
    struct key256 hash = {{0}};
    memcpy(hash.bytes, &tag, sizeof tag);
    memcpy(hash.bytes + 28, &i, sizeof i);
    return hash;
}

struct list {
    uint32_t names[MOST_BLOCKS]; /* N_HASHES: none */
};

static uint32_t find(const struct list *list, uint32_t n_blocks, uint32_t name)
{
    for (uint32_t i = 0; i < n_blocks; i++)
        if (list->names[i] == name)
            return i;
    return KV_NO_BLOCK;
}

static void run(uint32_t n_blocks, uint32_t n_tags)
{
    struct prefix_index index;
    struct list list;
    uint32_t n_named = 0;
    assert_int_equal(prefix_index_init(&index, n_blocks), QUIRE_OK);
    for (uint32_t i = 0; i < n_blocks; i++)
        list.names[i] = N_HASHES;
    for (uint32_t step = 0; step < 4000; step++) {
        uint32_t block = below(n_blocks), name = below(N_HASHES);
        struct key256 hash = hash_of(name, n_tags);
        assert_int_equal(prefix_index_find(&index, &hash), find(&list, n_blocks, name));
        /* Fills up and empties in turn. */
        if (list.names[block] == N_HASHES && find(&list, n_blocks, name) == KV_NO_BLOCK &&
            below(8) > step / 500 % 2 * 6) {
            prefix_index_insert(&index, block, &hash);
            list.names[block] = name;
            n_named++;
        } else if (list.names[block] != N_HASHES && below(8) < 1 + step / 500 % 2 * 6) {
            hash = hash_of(list.names[block], n_tags);
            prefix_index_remove(&index, block, prefix_tag(&hash));
            list.names[block] = N_HASHES;
            n_named--;
        }
        assert_int_equal(prefix_index_count(&index), n_named);
    }
    for (uint32_t i = 0; i < n_blocks; i++)
        if (list.names[i] != N_HASHES) {
            struct key256 hash = hash_of(list.names[i], n_tags);
            prefix_index_remove(&index, i, prefix_tag(&hash));
        }
    for (uint32_t i = 0; i < index.n_buckets; i++)
        assert_int_equal(index.buckets[i].n_passed, 0);
    prefix_index_free(&index);
}

static void test_against_a_list(void **state)
{
    (void)state;
    for (random_state = 1; random_state < 20; random_state++)
        for (uint32_t n_tags = 1; n_tags <= 64; n_tags *= 2) {
            uint64_t seed = random_state;
            run(1 + below(MOST_BLOCKS), n_tags);
            random_state = seed;
        }
}

/* With all blocks named, an absent name is not found, even where every bucket was passed by a name. */
static void test_full(void **state)
{
    (void)state;
    for (uint32_t n_blocks = 1; n_blocks <= 40; n_blocks++) {
        struct prefix_index index;
        assert_int_equal(prefix_index_init(&index, n_blocks), QUIRE_OK);
        for (uint32_t i = 0; i < n_blocks; i++) {
            struct key256 hash = hash_of(i, 1);
            prefix_index_insert(&index, i, &hash);
        }
        for (uint32_t i = 0; i < index.n_buckets; i++)
            index.buckets[i].n_passed++; /* as if names had passed it that are gone from it */
        for (uint32_t i = 0; i < N_HASHES; i++) {
            struct key256 hash = hash_of(i, 1);
            assert_int_equal(prefix_index_find(&index, &hash), i < n_blocks ? i : KV_NO_BLOCK);
        }
        prefix_index_free(&index);
    }
}

/* A bucket is a cache line. */
static void test_lines(void **state)
{
    (void)state;
    struct prefix_index index;
    assert_int_equal(prefix_index_init(&index, 100), QUIRE_OK);
    assert_int_equal((uintptr_t)index.buckets % KV_LINE_BYTES, 0);
    assert_int_equal((uintptr_t)index.hashes % KV_LINE_BYTES, 0);
    prefix_index_free(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_list), cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
