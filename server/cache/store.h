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
struct store_lookup; /* one that is on its way; the store's */

enum store_found { STORE_FOUND, STORE_MISS, STORE_AWAY /* it could not be asked, or did not answer in time */ };
/* bytes: borrowed until it returns. expires_s, hits: as the store keeps them. Never from within store_get(). */
typedef void (*store_answer)(void *context, enum store_found found, const uint8_t *bytes, size_t n, int64_t created_s,
                             int64_t expires_s, uint64_t hits);

struct store_stats { /* counters only grow */
    bool connected;
    uint64_t n_entries, n_bytes; /* as last known; live and expired */
    uint64_t n_expired; /* of the entries */
    uint64_t n_lookups, n_hits, n_misses, n_away, n_puts, n_put_failed /* refused, dropped or lost */, n_evicted,
        n_reconnects;
    uint64_t n_waiting; /* puts that are not acknowledged yet */
    char trouble[160]; /* the last, in words; empty: none */
};

struct answer_store_ops {
    const char *name; /* "sqlite", "redis" */
    /* NULL: there is no memory, or no room: as if it were away. */
    struct store_lookup *(*get)(struct answer_store *s, struct key256 key, store_answer answer, void *context);
    void (*cancel)(struct answer_store *s, struct store_lookup *lookup); /* its answer does not come */
    /* bytes are copied. Whole or not at all. Not there or too busy: it is dropped and counted. ttl_s > 0. */
    void (*put)(struct answer_store *s, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                uint32_t ttl_s, uint32_t n_tokens, struct key256 domain);
    void (*remove)(struct answer_store *s, struct key256 key);
    void (*hit)(struct answer_store *s, struct key256 key); /* counted there, some time; may be left out when busy */
    /* Everything that this server's name space has; done is called once, from the loop. */
    void (*clear)(struct answer_store *s, void (*done)(void *context, bool ok, uint64_t n_removed), void *context);
    void (*stats)(const struct answer_store *s, struct store_stats *out);
    /* Waits up to wait_ms until pending writes are acknowledged, then frees the store. No callback is called
     * afterwards. */
    void (*close)(struct answer_store *s, uint32_t wait_ms);
};
struct answer_store { /* the common head of every kind of store */
    const struct answer_store_ops *ops;
};

/* identity: of the engine that made the answers (engine/identity.h). A file of another is set aside by name (renamed, with
 * a line in the log), never half used. max_bytes: of the file. It is opened in the background: until then, and where it cannot
 * be, it is away, tried again, and stats say why. */
int store_open_sqlite(struct event_base *base, const char *path, struct key256 identity, uint64_t max_bytes,
                      struct answer_store **out, struct quire_error *err);
/* Whether store_open_sqlite() may have a file there; makes an empty one. */
int store_probe_sqlite(const char *path, struct quire_error *err);
/* An unreachable Redis is not an error here. Keys are "quire:", the identity's hex, ":", the key's hex. It counts no
 * hits, and reports neither bytes nor evictions. */
struct redis_url;
int store_open_redis(struct event_base *base, const struct redis_url *url, struct key256 identity,
                     struct answer_store **out, struct quire_error *err);
#endif
