#include "memory/prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct kv_chain_root root_of(uint8_t secret, uint8_t tenant, uint32_t adapter, uint32_t block_tokens)
{
    struct kv_chain_root root = {.adapter = adapter, .block_tokens = block_tokens};
    root.secret.bytes[5] = secret;
    root.tenant.bytes[31] = tenant;
    return root;
}

static int same(struct key256 a, struct key256 b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

static void test_root_separates(void **state)
{
    (void)state;
    struct kv_chain_root roots[] = {root_of(0, 0, 0, 16), root_of(1, 0, 0, 16), root_of(0, 1, 0, 16),
                                    root_of(0, 0, 1, 16), root_of(0, 0, 0, 32), root_of(0, 0, 1u << 31, 16)};
    size_t n = sizeof roots / sizeof roots[0];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            assert_int_equal(same(kv_chain_first(&roots[i]), kv_chain_first(&roots[j])), i == j);
}

/* Expected bytes from Python's hashlib, with the adapter in 8 bytes. */
static void test_root_bytes(void **state)
{
    (void)state;
    static const char *const owed[] = {"b3be7705175a873b25be910440c525fd216a76bb476ff8defdd38590aba277c5",
                                       "29e9a5f6a5d75514361ae99dd98982dd411fc9565ae015baec7d1cdcaef0f474"};
    for (uint32_t i = 0; i < 2; i++) {
        struct kv_chain_root root = root_of(7, 9, 5 * i, 16);
        struct key256 first = kv_chain_first(&root);
        char hex[65];
        quire_key256_hex(&first, hex);
        assert_string_equal(hex, owed[i]);
    }
}

static void test_chain_names_the_whole_prefix(void **state)
{
    (void)state;
    struct kv_chain_root root = root_of(7, 0, 0, 4);
    struct key256 first = kv_chain_first(&root), other = first;
    uint32_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 3, 5};
    struct key256 h = kv_chain_next(&root.secret, &first, a, 4);
    assert_true(same(h, kv_chain_next(&root.secret, &first, a, 4)));
    assert_false(same(h, kv_chain_next(&root.secret, &first, b, 4)));
    assert_false(same(h, kv_chain_next(&root.secret, &first, a, 3)));
    assert_false(same(h, kv_chain_next(&root.secret, &h, a, 4)));
    other.bytes[0] ^= 1;
    assert_false(same(h, kv_chain_next(&root.secret, &other, a, 4)));
    struct key256 secret = root.secret;
    secret.bytes[0] ^= 1;
    assert_false(same(h, kv_chain_next(&secret, &first, a, 4)));
}

/* Checks the bytes that the header documents. */
static void test_links_are_what_the_header_says(void **state)
{
    (void)state;
    struct kv_chain_root root = root_of(9, 3, 5, 2);
    struct key256 parent = kv_chain_first(&root);
    uint32_t tokens[] = {0x01020304, 0xa0b0c0d0};
    uint8_t head[76] = {0};
    memcpy(head, root.secret.bytes, 32);
    memcpy(head + 32, root.tenant.bytes, 32);
    head[64] = 5;
    head[72] = 2;
    assert_true(same(parent, quire_labelled_hash("quire kv root   ", head, sizeof head)));
    uint8_t data[72] = {0};
    memcpy(data, root.secret.bytes, 32);
    memcpy(data + 32, parent.bytes, 32);
    memcpy(data + 64, (uint8_t[]){4, 3, 2, 1, 0xd0, 0xc0, 0xb0, 0xa0}, 8);
    assert_true(same(kv_chain_next(&root.secret, &parent, tokens, 2),
                     quire_labelled_hash("quire kv block  ", data, sizeof data)));
}

static void test_long_blocks(void **state)
{
    (void)state;
    static uint32_t tokens[1024];
    struct kv_chain_root root = root_of(0, 0, 0, 1024);
    struct key256 first = kv_chain_first(&root);
    struct key256 h = kv_chain_next(&root.secret, &first, tokens, 1024);
    for (size_t i = 0; i < 1024; i += 1023) {
        tokens[i] ^= 1;
        assert_false(same(h, kv_chain_next(&root.secret, &first, tokens, 1024)));
        tokens[i] ^= 1;
    }
    assert_false(same(h, kv_chain_next(&root.secret, &first, tokens, 1023)));
}

static int init(void **state)
{
    (void)state;
    return quire_hash_init();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_separates),
        cmocka_unit_test(test_root_bytes),
        cmocka_unit_test(test_chain_names_the_whole_prefix),
        cmocka_unit_test(test_links_are_what_the_header_says),
        cmocka_unit_test(test_long_blocks),
    };
    return cmocka_run_group_tests(tests, init, NULL);
}
