/* Cached responses in this process's memory. The least recently served is evicted first. Their size is counted to
 * the byte.
 *
 * A cached response lives as long as the layer lists it or has a reader. Times are arguments in milliseconds since
 * 1970. One thread.
 */
#ifndef QUIRE_CACHE_MEMORY_LAYER_H
#define QUIRE_CACHE_MEMORY_LAYER_H

#include "server/cache/answer.h"
#include "server/cache/latency.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Bytes that a caller derived from an answer, stored with it under the caller's own name. */
struct rendering {
    struct rendering *next; /* next rendering of the same answer */
    struct cached *cached;
    struct key256 alias;
    size_t n;
    char bytes[];
};
#define CACHED_MAX_RENDERINGS 4 /* the oldest is dropped first */

struct cached {
    struct rendering *renderings; /* the newest first */
    struct answer answer; /* of bytes */
    struct buffer bytes;  /* allocated to their exact size */
    int64_t expires_ms;
    uint64_t n_hits;
    uint32_t n_readers;
    bool is_listed;
    TAILQ_ENTRY(cached) link; /* the next to evict is last */
    struct cached *next; /* next in its bucket */
};

struct memory_layer;

/* The counted size of a cached response: its struct, its bytes and its renderings. */
uint64_t cached_size(const struct cached *k);
/* Takes bytes that answer_check() has passed as `answer`, or that answer_end() made; consumed, also on failure. The
 * caller is a reader until cached_leave(). Returns NULL if memory is short. */
struct cached *cached_new(struct buffer *bytes, const struct answer *answer, int64_t expires_ms);
void cached_read(struct cached *k);
void cached_leave(struct cached *k);

int memory_layer_open(uint32_t max_entries, uint64_t max_bytes, struct memory_layer **out, struct quire_error *err);
void memory_layer_close(struct memory_layer *m); /* NULL is allowed */
/* Returns NULL if the key does not exist or has expired. The result is borrowed. */
struct cached *memory_layer_find(struct memory_layer *m, const struct key256 *key, int64_t now_ms);
/* Marks it as served. */
void memory_layer_use(struct memory_layer *m, struct cached *k);
/* Replaces a response under the same key. A response that is too large for the whole layer is not listed. */
void memory_layer_add(struct memory_layer *m, struct cached *k);
/* Bytes are copied. If k is not listed, nothing is stored. Other responses may be evicted. */
void memory_layer_attach(struct memory_layer *m, struct cached *k, const struct key256 *alias, const void *bytes,
                         size_t n);
void memory_layer_detach(struct memory_layer *m, const struct key256 *alias);
/* Returns NULL if the rendering does not exist or its answer has expired. The result is borrowed. */
const struct rendering *memory_layer_rendering(struct memory_layer *m, const struct key256 *alias, int64_t now_ms);
void memory_layer_remove(struct memory_layer *m, struct cached *k);
/* Returns the number of removed responses. */
uint64_t memory_layer_clear(struct memory_layer *m);
/* Calls each() for the listed responses, until their size is max_bytes. from: 0 at first, then the previous result.
 * Returns 0 after the last. */
size_t memory_layer_list(const struct memory_layer *m, size_t from, size_t max_bytes,
                         void (*each)(void *context, const struct cached *k), void *context);

/* Counts a lookup by the caller. */
void memory_layer_looked(struct memory_layer *m, bool found, double seconds);
/* n_expired: of those that are still listed. */
struct cache_layer memory_layer_counts(const struct memory_layer *m, int64_t now_ms);

#endif
