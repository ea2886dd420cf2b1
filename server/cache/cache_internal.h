/* State shared by response_cache.c (public functions, counters), flight.c (requests and their computation) and
 * give.c (whether a cached response may be served). */
#ifndef QUIRE_CACHE_INTERNAL_H
#define QUIRE_CACHE_INTERNAL_H

#include "base/clock.h"
#include "server/cache/asker.h"
#include "server/cache/cache_key.h"
#include "server/cache/response_cache.h"
#include "server/cache/similar.h"
#include "server/cache/verify.h"

/* Bit of this cache's ids. Ids of the source below pass through unchanged for requests that the cache does not
 * handle. */
#define OUR_ID (UINT64_C(1) << 63)

/* Hit reports: how often cached responses were served, used by the engine to rank their KV blocks (pins,
 * scheduling.md). They go with the next request. */
#define NEWS_MOST 64u
struct given_news {
    uint32_t n, next; /* next: index of the entry that is overwritten when all are used */
    uint32_t items[3 * NEWS_MOST]; /* as request_spec.given */
};

struct clearing;

struct response_cache {
    struct event_base *base;
    struct response_cache_options options;
    struct completion_source below;
    struct answer_store *store; /* NULL: none */
    struct similar *similar; /* NULL: questions are not compared */
    bool has_identity, was_told; /* was_told: a source has reported an identity; it is the identity of memory and
                                  * store */
    struct key256 identity;
    uint32_t n_vocab;
    struct memory_layer memory;
    struct verifier verifier;
    struct id_map askers; /* by id */
    struct id_map flights; /* flights that may be joined, by the first 8 bytes of their key */
    TAILQ_HEAD(, clearing) clearings; /* clears of the store that are in progress */
    struct asker_list replays; /* waiters that receive a cached response */
    struct given_news given;
    uint64_t next_id;
    uint64_t n_clears; /* earlier flights are not joined and not cached after a clear */
    struct response_cache_stats stats; /* counters only */
};

static inline int64_t cache_wall_ms(void)
{
    return (int64_t)(quire_wall_ns() / 1000000u);
}

/* ---- flight.c ---- */
/* Serves a cached response, joins an identical request in flight, or starts the computation. Afterwards the waiter
 * is in a list, or finished. On failure no event has occurred, and the caller owns the waiter. */
int flight_ask(struct response_cache *c, struct asker *a, const struct key256 *key, const struct request_spec *spec,
               struct quire_error *err);
/* The owner cancels the waiter. The waiter is freed. */
void flight_leave(struct asker *a);
/* The owner has cut a choice. */
void flight_cut(struct asker *a, uint32_t choice);

/* ---- give.c ---- */
/* A valid answer may still not belong to this request, because a key proves nothing against a program that can write
 * to the store. */
bool give_fits(const struct answer *answer, const struct request_spec *spec);
int64_t give_age(const struct answer *answer, int64_t now_s);
/* max_age_s 0: any age. */
bool give_is_young(const struct answer *answer, uint32_t max_age_s, int64_t now_s);

/* The content of a store under a key, borrowed; returned checked, with one reader (the caller). spec: the request
 * with that key; NULL: the response to a similar request. Returns NULL if the content cannot be used. */
struct store_entry {
    const uint8_t *bytes;
    size_t n;
    int64_t expires_s;
    uint64_t hits;
};
struct kept *give_found(struct response_cache *c, const struct key256 *key, const struct store_entry *e,
                        const struct request_spec *spec, uint32_t max_age_s);

/* Counts a served response and what it saved. */
void give_count(struct response_cache *c, const struct answer *answer);
/* Counts a response served from memory and marks it as recently used. */
void give_count_memory(struct response_cache *c, struct kept *k);
/* Marks the spec of a computation whose answer will be cached under this key for ttl_s seconds (0: not cached). The
 * spec borrows the hit reports. Once the source below has received them, they are cleared. */
void give_mark(const struct response_cache *c, const struct key256 *key, uint32_t ttl_s, struct request_spec *spec);
/* Adds to the hit reports: the answer was served n_hits times. A zero key clears the reports. */
void give_note(struct response_cache *c, const struct key256 *key, uint64_t n_hits);

/* Starts to serve the answer to the waiter, from its beginning. */
void give_begin(struct response_cache *c, struct asker *a, const struct answer *answer, const char *layer);

#endif
