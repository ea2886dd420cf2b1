/* What response_cache.c (the door, counters), flight.c (what is asked, and what becomes of it) and give.c (whether what is
 * kept may be given) share. */
#ifndef QUIRE_CACHE_INTERNAL_H
#define QUIRE_CACHE_INTERNAL_H

#include "base/clock.h"
#include "server/cache/asker.h"
#include "server/cache/cache_key.h"
#include "server/cache/response_cache.h"
#include "server/cache/similar.h"
#include "server/cache/verify.h"

/* Ids of ours; those of the source below are handed through where a request is none of the cache's business. */
#define OUR_ID (UINT64_C(1) << 63)

/* How often kept answers were given, for who ranks their KV blocks (pins, scheduling.md): it goes with the next request. */
#define NEWS_MOST 64u
struct given_news {
    uint32_t n, next; /* next: the place of the one that is overwritten when all are taken */
    uint32_t items[3 * NEWS_MOST]; /* as request_spec.given */
};

struct clearing;

struct response_cache {
    struct event_base *base;
    struct response_cache_options options;
    struct completion_source below;
    struct answer_store *store; /* NULL: none */
    struct similar *similar; /* NULL: questions are not compared */
    bool has_identity, was_told; /* was_told: identity is that of memory and store */
    struct key256 identity;
    uint32_t n_vocab;
    struct memory_layer memory;
    struct verifier verifier;
    struct id_map askers; /* by id */
    struct id_map flights; /* those that may be joined, by the first 8 bytes of their key */
    TAILQ_HEAD(, clearing) clearings; /* of the store, on their way */
    struct asker_list replays; /* askers that are told what is kept */
    struct given_news given;
    uint64_t next_id;
    uint64_t n_clears; /* flights of before one are joined, and kept, no more */
    struct response_cache_stats stats; /* counters only */
};

static inline int64_t cache_wall_ms(void)
{
    return (int64_t)(quire_wall_ns() / 1000000u);
}

/* ---- flight.c ---- */
/* Gives it what is kept, joins it to who asks the same, or has it computed. It is in a list afterwards, or over. On failure
 * no event has come, and the asker is the caller's. */
int flight_ask(struct response_cache *c, struct asker *a, const struct key256 *key, const struct request_spec *spec,
               struct quire_error *err);
/* Its owner wants no more. It is no more. */
void flight_leave(struct asker *a);
/* Its owner has cut a choice. */
void flight_cut(struct asker *a, uint32_t choice);

/* ---- give.c ---- */
/* An answer that is sound may still not be one to this request: a key is no proof against who writes into the store. */
bool give_fits(const struct answer *answer, const struct request_spec *spec);
int64_t give_age(const struct answer *answer, int64_t now_s);
/* max_age_s 0: it may be of any age. */
bool give_is_young(const struct answer *answer, uint32_t max_age_s, int64_t now_s);

/* What a store has under a key, borrowed; checked, it is as kept, read once by the caller. spec: the request whose own key it
 * is; NULL: another's answer is looked for. NULL: it is of no use. */
struct store_entry {
    const uint8_t *bytes;
    size_t n;
    int64_t expires_s;
    uint64_t hits;
};
struct kept *give_found(struct response_cache *c, const struct key256 *key, const struct store_entry *e,
                        const struct request_spec *spec, uint32_t max_age_s);

/* It is given: what that spares. */
void give_count(struct response_cache *c, const struct answer *answer);
/* One in memory: counted, and young again. */
void give_count_memory(struct response_cache *c, struct kept *k);
/* spec: of what will be kept under this key so long (0: not at all). The news in it are borrowed; once the source below has it
 * they are none any more. */
void give_mark(const struct response_cache *c, const struct key256 *key, uint32_t ttl_s, struct request_spec *spec);
/* That answer was given so often; a zero key: all are forgotten. */
void give_note(struct response_cache *c, const struct key256 *key, uint64_t n_hits);

/* The asker is told what it is given, from its beginning on. */
void give_begin(struct response_cache *c, struct asker *a, const struct answer *answer, const char *layer);

#endif
