/* The answers that POST /complete gave: an exact cache in memory. The answer that was used least recently is dropped
 * first; a use renews an answer's time. Pure: the caller provides the time. Loop's thread.
 */
#ifndef QUIRE_GATEWAY_ANSWER_CACHE_H
#define QUIRE_GATEWAY_ANSWER_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define ANSWER_CACHE_MAX_ENTRIES 4096
#define ANSWER_CACHE_MAX_BYTES ((size_t)64 << 20)
#define ANSWER_CACHE_TTL_MS ((uint64_t)3600 * 1000)

struct answer_cache;

struct cached_completion {
    const char *text; /* n bytes */
    size_t n;
    const char *model; /* that answered */
    uint64_t cost; /* picodollars: what a hit saves */
    uint64_t input, output; /* tokens */
};

struct answer_cache_stats {
    uint64_t n_entries, n_expired, n_bytes, n_evicted;
};

/* Limits of 0 are the values above. */
int answer_cache_open(uint32_t max_entries, size_t max_bytes, uint64_t ttl_ms, struct answer_cache **out,
                      struct quire_error *err);
void answer_cache_close(struct answer_cache *a); /* NULL is allowed */

/* Returns NULL if there is no answer, or its time is over. Borrowed until the next call. */
const struct cached_completion *answer_cache_find(struct answer_cache *a, const struct key256 *key, uint64_t now_ms);
/* Copies it, in place of an answer with the same key. An answer larger than a quarter of the limit is not kept. */
void answer_cache_add(struct answer_cache *a, const struct key256 *key, const struct cached_completion *answer,
                      uint64_t now_ms);
/* Returns the number of answers that were removed. */
uint64_t answer_cache_clear(struct answer_cache *a);
struct answer_cache_stats answer_cache_stats(const struct answer_cache *a, uint64_t now_ms);

#endif
