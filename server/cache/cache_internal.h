/* State shared by response_cache.c (public functions, counters), flight*.c (requests and their computation) and
 * serve_hit.c (whether a cached response may be served). */
#ifndef QUIRE_CACHE_INTERNAL_H
#define QUIRE_CACHE_INTERNAL_H

#include "base/clock.h"
#include "server/cache/cache_key.h"
#include "server/cache/hit_report.h"
#include "server/cache/response_cache.h"
#include "server/cache/similar.h"
#include "server/cache/verify.h"
#include "server/cache/waiter.h"

/* Bit of this cache's ids. Ids of the source below pass through unchanged for requests that the cache does not
 * handle. */
#define OUR_ID (UINT64_C(1) << 63)

struct clearing;

/* What the response cache counts itself. */
struct cache_counts {
    struct cache_layer_stats store; /* lookups of answers in the store */
    uint64_t n_guarded[N_GUARDS]; /* as in struct response_cache_stats */
    CACHE_STATS_ROWS(CACHE_STATS_MEMBER)
};

struct response_cache {
    struct event_base *base;
    uint32_t ttl_s; /* this and the next four: as in the options */
    bool unseeded, replay_pace;
    struct answer_store *(*open_store)(void *context, const struct key256 *identity);
    void *store_context;
    struct completion_source below;
    struct answer_store *store; /* NULL: none */
    struct similar *similar; /* NULL: questions are not compared */
    bool has_identity, was_told; /* was_told: a source has reported an identity; it is the identity of memory and
                                  * store */
    struct key256 identity;
    uint32_t n_vocab;
    struct memory_layer *memory;
    struct verifier *verifier;
    struct hit_report *hit_report;
    struct id_map waiters; /* by id */
    struct id_map flights; /* flights that may be joined, by the first 8 bytes of their key */
    TAILQ_HEAD(, clearing) clearings; /* clears of the store that are in progress */
    struct waiter_list replays; /* waiters that receive a cached response */
    uint64_t next_id;
    uint64_t n_clears; /* earlier flights are not joined and not cached after a clear */
    struct cache_counts counts;
};

static inline int64_t cache_wall_ms(void)
{
    return (int64_t)(quire_wall_ns() / 1000000u);
}

/* ---- flight.c, flight_state.c ---- */
/* Serves a cached response, joins an identical request in flight, or starts the computation. Afterwards the waiter
 * is in a list, or finished. On failure no event has occurred, and the caller owns the waiter. */
int flight_ask(struct response_cache *c, struct waiter *a, const struct key256 *key, const struct request_spec *spec,
               const struct completion_terms *terms, struct quire_error *err);
/* The owner cancels the waiter. The waiter is freed. */
void flight_leave(struct waiter *a);
/* The owner has cut a choice. */
void flight_cut(struct waiter *a, uint32_t choice);

/* ---- serve_hit.c ---- */
/* A valid answer may still not belong to this request, because a key proves nothing against a program that can write
 * to the store. */
bool hit_fits(const struct answer *answer, const struct request_spec *spec);
int64_t hit_age(const struct answer *answer, int64_t now_s);
/* max_age_s 0: any age. */
bool hit_is_young(const struct answer *answer, uint32_t max_age_s, int64_t now_s);

/* The content of a store under a key, borrowed; returned checked, with one reader (the caller). spec: the request
 * with that key; NULL: the response to a similar request. Returns NULL if the content cannot be used. */
struct store_entry {
    const uint8_t *bytes;
    size_t n;
    int64_t expires_s;
    uint64_t hits;
};
struct cached *hit_found(struct response_cache *c, const struct key256 *key, const struct store_entry *e,
                         const struct request_spec *spec, uint32_t max_age_s);

/* Counts a served response and what it saved. */
void hit_count(struct response_cache *c, const struct answer *answer);
/* Counts a response served from memory, except its lookup, and marks it as recently used. */
void hit_count_memory(struct response_cache *c, struct cached *k);
/* Marks the spec of a computation whose answer will be cached under this key for ttl_s seconds (0: not cached). */
void hit_mark(const struct key256 *key, uint32_t ttl_s, struct request_spec *spec);

/* Starts to serve the answer to the waiter, from its beginning. */
void hit_begin(struct response_cache *c, struct waiter *a, const struct answer *answer, const char *layer);

#endif
