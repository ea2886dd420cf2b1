#include "tests/cache/store_rig.h"

struct key256 key_of(uint32_t i)
{
    return quire_sha256(&i, sizeof i);
}

size_t fill(uint32_t i, uint8_t out[STORE_RIG_MOST_BYTES])
{
    const size_t n = 100 + i * 7919u % 60000;
    for (size_t b = 0; b < n; b++)
        out[b] = (uint8_t)(i * 31 + b * 7 + (b >> 8));
    return n;
}

void put_made(struct answer_store *s, uint32_t i, uint32_t ttl_s, time_t created_s)
{
    uint8_t bytes[STORE_RIG_MOST_BYTES];
    const size_t n = fill(i, bytes);
    const struct key256 nobody = {{0}};
    s->ops->put(s, key_of(i), bytes, n, created_s, ttl_s, 1, nobody);
}

void put(struct answer_store *s, uint32_t i, uint32_t ttl_s)
{
    put_made(s, i, ttl_s, time(NULL));
}
