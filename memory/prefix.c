#include "memory/prefix.h"

#include <string.h>

/* The first byte of what is hashed keeps the two kinds of link apart. */
enum { LINK_FIRST = 0, LINK_NEXT = 1 };

/* Tokens hashed in one call. A longer block is a chain of such pieces. */
#define PIECE_TOKENS 256

static void put_le(uint8_t *out, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

struct key256 kv_chain_first(const struct kv_chain_root *root)
{
    uint8_t data[1 + 32 + 8 + 4];
    data[0] = LINK_FIRST;
    memcpy(data + 1, root->tenant.bytes, 32);
    put_le(data + 33, root->adapter, 8);
    put_le(data + 41, root->block_tokens, 4);
    return quire_keyed_hash(&root->secret, data, sizeof data);
}

struct key256 kv_chain_next(const struct key256 *secret, const struct key256 *parent,
                            const uint32_t *tokens, uint32_t n_tokens)
{
    uint8_t data[1 + 32 + 4 * PIECE_TOKENS];
    struct key256 name = *parent;
    do {
        uint32_t n = n_tokens < PIECE_TOKENS ? n_tokens : PIECE_TOKENS;
        data[0] = LINK_NEXT;
        memcpy(data + 1, name.bytes, 32);
        for (uint32_t i = 0; i < n; i++)
            put_le(data + 33 + 4 * (size_t)i, tokens[i], 4);
        name = quire_keyed_hash(secret, data, 33 + 4 * (size_t)n);
        tokens += n;
        n_tokens -= n;
    } while (n_tokens > 0);
    return name;
}
