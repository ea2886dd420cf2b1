/* 256-bit hashes, by libsodium. Pure; any thread once quire_hash_init() has returned.
 * `key256` is the name that block tables, HELLO and caches use for such a value.
 */
#ifndef QUIRE_BASE_HASH_H
#define QUIRE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct key256 {
    uint8_t bytes[32];
};

/* Once per process, before any other call here. QUIRE_INTERNAL when libsodium has no entropy. */
int quire_hash_init(void);

/* Fills out with unpredictable bytes. */
void quire_random(void *out, size_t n);

/* SHA-256 of data: file identities (HELLO), never secrets. */
struct key256 quire_sha256(const void *data, size_t n);

/* The same over data that comes in pieces. The state may be copied; one thread at a time. */
struct quire_sha256_state {
    uint64_t words[13];
};
void quire_sha256_begin(struct quire_sha256_state *s);
void quire_sha256_add(struct quire_sha256_state *s, const void *data, size_t n);
/* Of what was added so far; more may follow. */
struct key256 quire_sha256_now(const struct quire_sha256_state *s);

/* BLAKE2b-256 of data under key: MACs. key may be NULL: unkeyed. */
struct key256 quire_keyed_hash(const struct key256 *key, const void *data, size_t n);

/* BLAKE2b-256 of data with a 16-byte personalization: hashes under two labels are as good as two
 * functions. With a 32-byte secret as the first bytes of data it is a MAC, as the keyed hash is
 * (BLAKE2 marks its last block, so nothing can be appended), and one compression cheaper: the keyed
 * form spends a 128-byte block on the key. */
#define QUIRE_HASH_LABEL_BYTES 16
struct key256 quire_labelled_hash(const char label[QUIRE_HASH_LABEL_BYTES], const void *data, size_t n);

/* Constant-time comparison, for secrets. */
int quire_secret_equal(const void *a, const void *b, size_t n);

/* 64 lower-case hex digits and a NUL into out. */
void quire_key256_hex(const struct key256 *k, char out[65]);

#endif
