/* The chain of 256-bit hashes that names full KV blocks.
 *
 *   H(0)   = BLAKE2b-256("quire kv root   ", secret | tenant domain | adapter | block size)
 *   H(i+1) = BLAKE2b-256("quire kv block  ", secret | H(i) | token ids of block i)
 *
 * The text in quotes is the hash's 16-byte personalization. Integers are little-endian; the adapter takes 8 bytes. Two
 * blocks have the same name only if the whole prefix before them, the tenant, the adapter and the block size are the
 * same. Every link starts with a secret of this server, so no tenant can compute another tenant's names, even from a
 * name that it knows. A link of 16 tokens is 32 + 32 + 64 = 128 bytes: one compression, 0.14 us (0.29 us with the
 * secret as BLAKE2b's key, which takes its own block). Owns nothing. Pure; any thread.
 */
#ifndef QUIRE_MEMORY_PREFIX_H
#define QUIRE_MEMORY_PREFIX_H

#include "base/hash.h"

#include <stdint.h>

struct kv_chain_root {
    struct key256 secret;
    struct key256 tenant;  /* the tenant's domain; all zero is the default tenant */
    uint32_t adapter;
    uint32_t block_tokens;
};

struct key256 kv_chain_first(const struct kv_chain_root *root);
struct key256 kv_chain_next(const struct key256 *secret, const struct key256 *parent, const uint32_t *tokens,
                            uint32_t n_tokens);

#endif
