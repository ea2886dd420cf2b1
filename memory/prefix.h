/* The chain of 256-bit hashes that names full KV blocks.
 *
 * H(0) = keyed(secret, tenant domain, adapter, block size); H(i+1) = keyed(secret, H(i), token ids
 * of block i). Two blocks have the same name only when the whole prefix before them, the tenant,
 * the adapter and the block size are the same. The key is a secret of this server, so that no
 * tenant can compute another's names. Pure; any thread.
 */
#ifndef QUIRE_MEMORY_PREFIX_H
#define QUIRE_MEMORY_PREFIX_H

#include "base/hash.h"

#include <stdint.h>

struct kv_chain_root {
    struct key256 secret;
    struct key256 tenant;  /* the tenant's domain: all zero = the default tenant */
    uint64_t adapter;
    uint32_t block_tokens;
};

struct key256 kv_chain_first(const struct kv_chain_root *root);
struct key256 kv_chain_next(const struct key256 *secret, const struct key256 *parent,
                            const uint32_t *tokens, uint32_t n_tokens);

#endif
