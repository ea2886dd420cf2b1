/* Answers that were given before, in front of the engine. It is a completion source that stands before another: a request
 * whose answer is kept is told it again, and one that is being computed already waits for that (single flight); everything
 * else goes on, and what comes back is written down on its way. It cannot lie, because a request's bits depend on the
 * request and the arithmetic alone, and these are the key.
 *
 * Layers: this process' memory (LRU), then a store (store.h), then answers to similar questions (similar.h), then the source
 * below. Loop's thread.
 *
 * Kept is what was computed to its end: not errors, what a client left, or what ended because there was no more room than
 * for less than was asked (terms->is_bounded, and fewer tokens than max_tokens).
 */
#ifndef QUIRE_CACHE_RESPONSE_CACHE_H
#define QUIRE_CACHE_RESPONSE_CACHE_H

#include "server/cache/latency.h"
#include "server/cache/similar.h"
#include "server/cache/store.h"
#include "server/link/completion_source.h"
#include "server/similar/guards.h"

struct response_cache;

#define RESPONSE_CACHE_ENTRIES 128u
#define RESPONSE_CACHE_BYTES ((uint64_t)64 << 20)
#define RESPONSE_CACHE_TTL_S 3600u

struct response_cache_options {
    uint32_t max_entries; /* of memory; 0 = RESPONSE_CACHE_ENTRIES */
    uint64_t max_bytes; /* of memory; 0 = RESPONSE_CACHE_BYTES */
    uint32_t ttl_s; /* 0 = RESPONSE_CACHE_TTL_S */
    bool unseeded; /* answers drawn without a seed are given again, too */
    bool replay_pace; /* streams come at the pace the answer had */
    double verify; /* this share of the answers given from memory is computed again, and compared */
    /* Opens the store for answers of this identity, when that is known; NULL, or NULL of it: there is none. What it
     * gives is the cache's, which closes it before it asks for that of another identity. */
    struct answer_store *(*open_store)(void *context, const struct key256 *identity);
    void *context;
};

int response_cache_open(struct event_base *base, const struct response_cache_options *options,
                        struct response_cache **out, struct quire_error *err);
void response_cache_close(struct response_cache *c); /* no request is live; NULL is fine */

/* What answers is another one, which has not told its identity yet; response_cache_set_below() follows when it does. What
 * is kept is given meanwhile, and what is not is asked of it. */
void response_cache_await_below(struct response_cache *cache, struct completion_source below);
/* Whether what is kept is of this identity; NULL: of none. Else no request may be live at response_cache_set_below(). */
bool response_cache_is_of(const struct response_cache *cache, const struct key256 *identity);
/* What is below, and what its answers depend on; identity NULL: it does not tell, and nothing is kept. Again whenever an
 * engine becomes ready; no request is live. */
void response_cache_set_below(struct response_cache *c, struct completion_source below, const struct key256 *identity,
                              uint32_t n_vocab);
/* Questions are compared from here on, by who embeds them; `similar` is the cache's, which closes it. Before any is asked. */
void response_cache_compare(struct response_cache *c, struct similar *similar);
struct completion_source response_cache_source(struct response_cache *c);

/* A reply that somebody made of an answer that is kept in memory, found by a name that he gives it (he sees to it that
 * another question never has the same); gone when the answer is. Giving it counts as giving the answer. */
struct cached_reply { /* bytes: borrowed until the next call here */
    const void *bytes;
    size_t n;
    uint32_t n_prompt, n_cached, age_s;
    bool unseeded;
};
bool response_cache_find_reply(struct response_cache *c, const struct key256 *alias, struct cached_reply *out);
/* Streams are not given at once. */
bool response_cache_is_paced(const struct response_cache *c);
/* key: as on_origin told it. */
void response_cache_keep_reply(struct response_cache *c, const struct key256 *key, const struct key256 *alias,
                               const void *bytes, size_t n);

/* Answers in memory, as they lie there. Borrowed. */
struct kept_answer {
    struct key256 key;
    const uint8_t *bytes;
    size_t n;
    int64_t created_s, expires_s;
    uint64_t n_hits, n_generated;
    uint32_t n_prompt;
    bool unseeded;
};
/* Some of them, of max_bytes or a little more; from: 0 at first, then what the call before has returned. 0: these were the
 * last. What comes and goes in between may be told or not; what stays is told once. */
size_t response_cache_list(const struct response_cache *c, size_t from, size_t max_bytes,
                           void (*each)(void *context, const struct kept_answer *k), void *context);
/* Takes over one that was listed. False: it is none, or its time is over. */
bool response_cache_import(struct response_cache *c, const void *bytes, size_t n, int64_t expires_s);

struct response_cache_stats { /* counters only grow; n_entries and n_bytes are of now */
    struct cache_layer_stats memory, store;
    uint64_t n_entries, n_expired, n_bytes, n_evicted; /* of memory; n_expired of n_entries */
    uint64_t n_joined; /* waited for one that was being computed */
    uint64_t n_computed, n_stored, n_not_stored, n_unseeded_hits, n_unsound /* what the store gave was none */;
    uint64_t n_verified, n_differing /* what was kept was not what is computed; forgotten */;
    uint64_t n_prompt_tokens_saved, n_tokens_saved;
    uint64_t n_cached_tokens_saved; /* of the prompts': those that the prefix cache had when they were computed */
    double seconds_saved; /* what the answers took when they were computed */
    uint64_t n_resumed, n_tokens_resumed; /* computed behind a shorter answer, and what that had */
    uint64_t n_guarded[N_GUARDS]; /* answers to similar questions that a guard kept back; GUARD_NONE: given */
    bool compares; /* similar questions are looked for: */
    struct similar_stats similar;
    enum similar_mode similar_mode;
    const char *store_name; /* NULL: there is no store */
    struct store_stats kept; /* of the store */
};
void response_cache_stats(const struct response_cache *c, struct response_cache_stats *out);
/* Everything. What is being computed is given to who waits for it, and to nobody who comes from here on. done: once, from the loop or from within. */
void response_cache_clear(struct response_cache *c, void (*done)(void *context, bool ok, uint64_t n_removed),
                          void *context);
#endif
