#include "memory/prefix.h"

#include "base/encoding/little_endian.h"

#include <string.h>

static const char label_root[] = "quire kv root   ";
static const char label_block[] = "quire kv block  ";

/* Number of tokens hashed in one call. A longer block is a chain of such pieces. */
#define PIECE_TOKENS 256

struct key256 kv_chain_first(const struct kv_chain_root *root)
{
    uint8_t data[32 + 32 + 8 + 4];
    memcpy(data, root->secret.bytes, 32);
    memcpy(data + 32, root->tenant.bytes, 32);
    le_store_u64(data + 64, root->adapter);
    le_store_u32(data + 72, root->block_tokens);
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
            le_store_u32(data + 64 + 4 * (size_t)i, tokens[i]);
        name = quire_labelled_hash(label_block, data, 64 + 4 * (size_t)n);
        tokens += n;
        n_tokens -= n;
    } while (n_tokens > 0);
    return name;
}
