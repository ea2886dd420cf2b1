#include "memory/prefix.h"

#include <string.h>

static const char label_root[] = "quire kv root   ";
static const char label_block[] = "quire kv block  ";

/* Tokens hashed in one call. A longer block is a chain of such pieces. */
#define PIECE_TOKENS 256

/* Spelled out, so that it compiles to one store where the machine is little-endian: a loop over the
 * bytes cost as much as the hash. */
static void put_le32(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    out[2] = (uint8_t)(value >> 16);
    out[3] = (uint8_t)(value >> 24);
}

struct key256 kv_chain_first(const struct kv_chain_root *root)
{
    uint8_t data[32 + 32 + 8 + 4];
    memcpy(data, root->secret.bytes, 32);
    memcpy(data + 32, root->tenant.bytes, 32);
    put_le32(data + 64, (uint32_t)root->adapter);
    put_le32(data + 68, (uint32_t)(root->adapter >> 32));
    put_le32(data + 72, root->block_tokens);
    return quire_labelled_hash(label_root, data, sizeof data);
}

struct key256 kv_chain_next(const struct key256 *secret, const struct key256 *parent, const uint32_t *tokens,
                            uint32_t n_tokens)
{
    uint8_t data[32 + 32 + 4 * PIECE_TOKENS];
    struct key256 name = *parent;
    memcpy(data, secret->bytes, 32);
    do {
        uint32_t n = n_tokens < PIECE_TOKENS ? n_tokens : PIECE_TOKENS;
        memcpy(data + 32, name.bytes, 32);
        for (uint32_t i = 0; i < n; i++)
            put_le32(data + 64 + 4 * (size_t)i, tokens[i]);
        name = quire_labelled_hash(label_block, data, 64 + 4 * (size_t)n);
        tokens += n;
        n_tokens -= n;
    } while (n_tokens > 0);
    return name;
}
