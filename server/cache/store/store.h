/* Storage for cached responses outside this process's memory: a SQLite file or a Redis. Call everything on the
 * thread of the event loop. No call blocks: files and sockets are handled by the store's thread or the loop's
 * sockets.
 *
 * A store may return wrong data, be slow or disappear. The returned bytes are untrusted, and the caller checks them
 * (answer.h). If the store does not answer in time, the lookup is a miss. The store recovers by itself.
 */
#ifndef QUIRE_CACHE_STORE_H
#define QUIRE_CACHE_STORE_H

#include "base/hash.h"
#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answer_store;
struct store_lookup; /* a lookup in progress; owned by the store */

enum store_found {
    STORE_FOUND,
    STORE_MISS,
    STORE_AWAY /* the store could not be queried, or did not answer in time */
};
/* bytes: borrowed until the callback returns. expires_s, hits: the store's values. Never called from within
 * store_get(). */
typedef void (*store_answer)(void *context, enum store_found found, const uint8_t *bytes, size_t n, int64_t created_s,
                             int64_t expires_s, uint64_t hits);

struct store_stats { /* counters only grow */
    bool connected;
    uint64_t n_entries, n_bytes; /* as last known; live and expired */
    uint64_t n_expired; /* of the entries */
    uint64_t n_lookups, n_hits, n_misses, n_away, n_puts, n_put_failed /* rejected, dropped or lost */, n_evicted,
        n_reconnects;
    uint64_t n_waiting; /* puts that are not acknowledged yet */
    char trouble[160]; /* the last error as text; empty if there was no error */
};

struct answer_store_ops {
    const char *name; /* "sqlite", "redis" */
    /* Returns NULL if memory or the queue is full; handle it as STORE_AWAY. */
    struct store_lookup *(*get)(struct answer_store *s, struct key256 key, store_answer answer, void *context);
    void (*cancel)(struct answer_store *s, struct store_lookup *lookup); /* its callback is not called */
    /* bytes are copied. Whole or not at all. If the store is unavailable or too busy, the answer is dropped and
     * counted. ttl_s > 0. */
    void (*put)(struct answer_store *s, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                uint32_t ttl_s, uint32_t n_tokens, struct key256 domain);
    void (*remove)(struct answer_store *s, struct key256 key);
    void (*hit)(struct answer_store *s, struct key256 key); /* counts a hit in the store, with a delay; may be
                                                             * skipped when busy */
    /* Removes every answer in this server's name space; done is called once, from the loop. */
    void (*clear)(struct answer_store *s, void (*done)(void *context, bool ok, uint64_t n_removed), void *context);
    void (*stats)(const struct answer_store *s, struct store_stats *out);
    /* Waits up to wait_ms until pending writes are acknowledged, then frees the store. No callback is called
     * afterwards. */
    void (*close)(struct answer_store *s, uint32_t wait_ms);
};
struct answer_store { /* the common head of every kind of store */
    const struct answer_store_ops *ops;
};

/* identity: of the engine that made the answers (engine/identity.h). A file of another identity is renamed with a
 * line in the log, and never used. max_bytes: limit of the file. The file is opened in the background. Until then,
 * and if it cannot be opened, lookups return STORE_AWAY, opening is retried, and the statistics hold the reason. */
int store_open_sqlite(struct event_base *base, const char *path, struct key256 identity, uint64_t max_bytes,
                      struct answer_store **out, struct quire_error *err);
/* Checks whether store_open_sqlite() can use this path; creates an empty file. */
int store_probe_sqlite(const char *path, struct quire_error *err);
/* An unreachable Redis is not an error here. Keys are "quire:", the identity's hex, ":", the key's hex. It counts no
 * hits, and reports neither bytes nor evictions. */
struct redis_url;
int store_open_redis(struct event_base *base, const struct redis_url *url, struct key256 identity,
                     struct answer_store **out, struct quire_error *err);
#endif
