/* 256-bit hashes from libsodium. Pure; any thread, once quire_hash_init() has returned. `key256` is the type of such a
 * value in block tables, HELLO and caches. */
#ifndef QUIRE_BASE_HASH_H
#define QUIRE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct key256 {
    uint8_t bytes[32];
};

/* Call once per process, before any other function here. Returns QUIRE_INTERNAL if libsodium has no entropy. */
int quire_hash_init(void);

/* Fills out with n unpredictable bytes. */
void quire_random(void *out, size_t n);

/* SHA-256 of data. For file identities (HELLO); never for secrets. */
struct key256 quire_sha256(const void *data, size_t n);

/* SHA-256 of data that arrives in pieces. The state may be copied. One thread at a time. */
struct quire_sha256_state {
    uint64_t words[13];
};
void quire_sha256_begin(struct quire_sha256_state *s);
void quire_sha256_add(struct quire_sha256_state *s, const void *data, size_t n);
/* Returns the hash of the bytes added so far. More bytes may follow. */
struct key256 quire_sha256_now(const struct quire_sha256_state *s);

/* BLAKE2b-256 of data under key, for MACs. A NULL key selects the unkeyed hash. */
struct key256 quire_keyed_hash(const struct key256 *key, const void *data, size_t n);

/* BLAKE2b-256 of data with a 16-byte personalization. Hashes under two labels behave like two independent functions. If
 * data starts with a 32-byte secret, the result is a MAC like the keyed hash: BLAKE2 marks its last block, so an
 * attacker cannot append data. It costs one compression less, because the keyed form uses a 128-byte block for the key.
 */
#define QUIRE_HASH_LABEL_BYTES 16
struct key256 quire_labelled_hash(const char label[QUIRE_HASH_LABEL_BYTES], const void *data, size_t n);

/* Constant-time comparison, for secrets. */
int quire_secret_equal(const void *a, const void *b, size_t n);

/* Writes 64 lower-case hex digits and a NUL to out. */
void quire_key256_hex(const struct key256 *k, char out[65]);

#endif
