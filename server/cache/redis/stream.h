/* Reads XREAD's reply for one stream: its entries, each with an id and pairs of fields and values. The input is
 * untrusted until it is checked here. Everything is borrowed from the reply. Pure; any thread. */
#ifndef QUIRE_CACHE_REDIS_STREAM_H
#define QUIRE_CACHE_REDIS_STREAM_H

#include "server/cache/redis/reply.h"

#include <stdbool.h>

struct redis_stream_id {
    uint64_t ms, number;
};
#define REDIS_STREAM_ID_BYTES 42 /* as text, with its NUL */
void redis_stream_id_text(const struct redis_stream_id *id, char out[REDIS_STREAM_ID_BYTES]);

/* *n: how many; 0: nothing has come since. False: it is no such reply. */
bool redis_stream_entries(const struct redis_reply *reply, const struct redis_reply **entries, size_t *n);
/* False: it is no entry, or does not stand behind `last`, which becomes its id. */
bool redis_stream_next(const struct redis_reply *entry, struct redis_stream_id *last);
/* Takes an entry that passed the check; returns NULL if it has no such field. */
const struct redis_reply *redis_stream_value(const struct redis_reply *entry, const char *field);

#endif
