#include "base/hash.h"

#include "base/status.h"

#include <sodium.h>

int quire_hash_init(void)
{
    return sodium_init() < 0 ? QUIRE_INTERNAL : QUIRE_OK;
}

void quire_random(void *out, size_t n)
{
    randombytes_buf(out, n);
}

struct key256 quire_sha256(const void *data, size_t n)
{
    struct key256 k;
    crypto_hash_sha256(k.bytes, data, n);
    return k;
}

_Static_assert(sizeof(struct quire_sha256_state) >= sizeof(crypto_hash_sha256_state), "libsodium's state fits");

void quire_sha256_begin(struct quire_sha256_state *s)
{
    crypto_hash_sha256_init((crypto_hash_sha256_state *)(void *)s);
}

void quire_sha256_add(struct quire_sha256_state *s, const void *data, size_t n)
{
    crypto_hash_sha256_update((crypto_hash_sha256_state *)(void *)s, data, n);
}

struct key256 quire_sha256_now(const struct quire_sha256_state *s)
{
    struct quire_sha256_state end = *s;
    struct key256 k;
    crypto_hash_sha256_final((crypto_hash_sha256_state *)(void *)&end, k.bytes);
    return k;
}

struct key256 quire_keyed_hash(const struct key256 *key, const void *data, size_t n)
{
    struct key256 k;
    crypto_generichash(k.bytes, sizeof k.bytes, data, n, key ? key->bytes : NULL, key ? sizeof key->bytes : 0);
    return k;
}

struct key256 quire_labelled_hash(const char label[QUIRE_HASH_LABEL_BYTES], const void *data, size_t n)
{
    struct key256 k;
    crypto_generichash_blake2b_salt_personal(k.bytes, sizeof k.bytes, data, n, NULL, 0, NULL,
                                             (const unsigned char *)label);
    return k;
}

int quire_secret_equal(const void *a, const void *b, size_t n)
{
    return sodium_memcmp(a, b, n) == 0;
}

void quire_key256_hex(const struct key256 *k, char out[65])
{
    sodium_bin2hex(out, 65, k->bytes, sizeof k->bytes);
}
