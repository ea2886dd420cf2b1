/* State shared by response_cache.c (public functions, counters), flight.c (requests and their computation), serve_hit.c
 * (whether a cached response may be served) and hit_report.c (how often responses were served). */
#ifndef QUIRE_CACHE_INTERNAL_H
#define QUIRE_CACHE_INTERNAL_H

#include "base/clock.h"
#include "server/cache/waiter.h"
#include "server/cache/cache_key.h"
#include "server/cache/response_cache.h"
#include "server/cache/similar.h"
#include "server/cache/verify.h"

/* Bit of this cache's ids. Ids of the source below pass through unchanged for requests that the cache does not
 * handle. */
#define OUR_ID (UINT64_C(1) << 63)

/* How often cached responses were served, which the source below has not been told yet. It ranks their KV blocks by it
 * (pins, scheduling.md). */
#define HITS_MAX 64u
struct hit_report {
    struct event *due; /* pending while something waits */
    uint32_t n, next; /* next: index of the entry that is overwritten when all are used */
    uint32_t items[3 * HITS_MAX]; /* as completion_source.report_hits takes them */
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
    struct id_map waiters; /* by id */
    struct id_map flights; /* flights that may be joined, by the first 8 bytes of their key */
    TAILQ_HEAD(, clearing) clearings; /* clears of the store that are in progress */
    struct waiter_list replays; /* waiters that receive a cached response */
    struct hit_report hit_report;
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
/* Counts a response served from memory and marks it as recently used. */
void hit_count_memory(struct response_cache *c, struct cached *k);
/* Marks the spec of a computation whose answer will be cached under this key for ttl_s seconds (0: not cached). */
void hit_mark(const struct key256 *key, uint32_t ttl_s, struct request_spec *spec);

/* Starts to serve the answer to the waiter, from its beginning. */
void hit_begin(struct response_cache *c, struct waiter *a, const struct answer *answer, const char *layer);

/* ---- hit_report.c ---- */
/* The name by which the source below knows the answer. Keys are hashes, so 8 bytes identify them. */
uint64_t hit_report_name(const struct key256 *key);
int hit_report_open(struct response_cache *c, struct quire_error *err);
void hit_report_close(struct response_cache *c);
/* Adds to the report: the answer was served n_hits times. A zero key removes all answers, and goes out at once. Other
 * reports go out when all entries are used, and otherwise a fifth of a second later. */
void hit_report_add(struct response_cache *c, const struct key256 *key, uint64_t n_hits);
/* Sends what waits, so that the source below ranks the next request by it. If that is not possible now, it waits. */
void hit_report_send(struct response_cache *c);

#endif
