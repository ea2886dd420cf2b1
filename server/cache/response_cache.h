/* The response cache in front of the engine. It is a completion source in front of another one. A request with a
 * cached response receives that response, and a request that is already being computed joins the computation (single
 * flight). Every other request passes through, and its answer is recorded on the way back. A hit equals a
 * computation, because a request's bits depend only on the request and the arithmetic, and these form the key.
 *
 * Layers: this process' memory (LRU), then a store (store.h), then answers to similar questions (similar.h), then the source
 * below. Loop's thread.
 *
 * Only completed answers are cached. It skips errors, answers that a client cancelled, and answers that ended early
 * because less space was left than requested (terms->is_bounded, and fewer tokens than max_tokens).
 */
#ifndef QUIRE_CACHE_RESPONSE_CACHE_H
#define QUIRE_CACHE_RESPONSE_CACHE_H

#include "server/cache/latency.h"
#include "server/cache/similar.h"
#include "server/cache/stats_rows.h"
#include "server/cache/store/store.h"
#include "server/link/completion_source.h"
#include "server/similar/guards.h"

struct response_cache;

#define RESPONSE_CACHE_ENTRIES 128u
#define RESPONSE_CACHE_BYTES ((uint64_t)64 << 20)
#define RESPONSE_CACHE_TTL_S 3600u

struct response_cache_options {
    uint32_t max_entries; /* in memory; 0 = RESPONSE_CACHE_ENTRIES */
    uint64_t max_bytes; /* in memory; 0 = RESPONSE_CACHE_BYTES */
    uint32_t ttl_s; /* 0 = RESPONSE_CACHE_TTL_S */
    bool unseeded; /* serve answers that were drawn without a seed, too */
    bool replay_pace; /* serve streams at the pace of the original answer */
    double verify; /* share of the answers served from memory that is computed again and compared */
    /* Opens the store for answers of this identity, once the identity is known. NULL, or a NULL result, means no
     * store. The cache owns the result, and closes it before it opens the store of another identity. */
    struct answer_store *(*open_store)(void *context, const struct key256 *identity);
    void *context;
};

int response_cache_open(struct event_base *base, const struct response_cache_options *options,
                        struct response_cache **out, struct quire_error *err);
void response_cache_close(struct response_cache *c); /* no request is live; NULL is fine */

/* Sets a source below that has not reported its identity yet; response_cache_set_below() follows when it does.
 * Meanwhile cached responses are served, and other requests go to the source below. */
void response_cache_await_below(struct response_cache *cache, struct completion_source below);
/* Whether the cached responses belong to this identity; NULL: no identity. If not, no request may be live at
 * response_cache_set_below(). */
bool response_cache_is_of(const struct response_cache *cache, const struct key256 *identity);
/* Sets the source below and everything that its answers depend on. identity: NULL disables caching. Call it again
 * whenever an engine becomes ready; no request may be live. */
void response_cache_set_below(struct response_cache *c, struct completion_source below, const struct key256 *identity,
                              uint32_t n_vocab);
/* Enables the comparison of questions. The cache owns `similar` and closes it. Call it before the first request. */
void response_cache_compare(struct response_cache *c, struct similar *similar);
struct completion_source response_cache_source(struct response_cache *c);

/* A reply that a caller derived from a cached response in memory, stored under a name that the caller chooses (and
 * never uses for another question). It is dropped with the response. Serving it counts as serving the response. */
struct cached_reply { /* bytes: borrowed until the next call here */
    const void *bytes;
    size_t n;
    uint32_t n_prompt, n_cached, age_s;
    bool unseeded;
};
bool response_cache_find_reply(struct response_cache *c, const struct key256 *alias, struct cached_reply *out);
/* Whether streams are served at their original pace. */
bool response_cache_is_paced(const struct response_cache *c);
/* key: as reported by on_origin. */
void response_cache_keep_reply(struct response_cache *c, const struct key256 *key, const struct key256 *alias,
                               const void *bytes, size_t n);

/* The cached responses in memory, without a copy. Borrowed. */
struct cached_answer {
    struct key256 key;
    const uint8_t *bytes;
    size_t n;
    int64_t created_s, expires_s;
    uint64_t n_hits, n_generated;
    uint32_t n_prompt;
    bool unseeded;
};
/* Lists cached responses, max_bytes or a little more per call. from: 0 at first, then the previous result. Returns 0
 * after the last. Responses that come or go between calls may be missing; those that stay are listed once. */
size_t response_cache_list(const struct response_cache *c, size_t from, size_t max_bytes,
                           void (*each)(void *context, const struct cached_answer *k), void *context);
/* Imports a listed response. Returns false if it is invalid or has expired. */
bool response_cache_import(struct response_cache *c, const void *bytes, size_t n, int64_t expires_s);

enum { CACHE_MEMORY, CACHE_STORE, CACHE_SEMANTIC, N_CACHE_LAYERS };
struct response_cache_stats { /* counters only grow; entries and bytes of a layer are of now */
    struct cache_layer layers[N_CACHE_LAYERS];
    uint64_t n_guarded[N_GUARDS]; /* answers to similar questions that a guard rejected; GUARD_NONE: served */
    CACHE_STATS_ROWS(CACHE_STATS_MEMBER)
};
void response_cache_stats(const struct response_cache *c, struct response_cache_stats *out);
/* Statistics of the store's own. Returns false if there is no store. */
bool response_cache_store_stats(const struct response_cache *c, struct store_stats *out);
/* Statistics of the comparison. Returns false if questions are not compared. */
bool response_cache_similar_stats(const struct response_cache *c, struct similar_stats *out);
/* Removes everything. An answer in computation is delivered to its current waiters, but to no later request. done:
 * called once, from the loop or from within. */
void response_cache_clear(struct response_cache *c, void (*done)(void *context, bool ok, uint64_t n_removed),
                          void *context);
#endif
