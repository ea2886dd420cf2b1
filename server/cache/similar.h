/* The semantic cache: a companion model computes a question's vector, and the nearest answered question of the same
 * context is looked up. The result is a draft, which the model verifies token by token, or, if the server allows it,
 * an answer.
 *
 * This file holds the vectors (server/similar/vector_index.h). The response cache holds the answers. Loop's thread.
 */
#ifndef QUIRE_CACHE_SIMILAR_H
#define QUIRE_CACHE_SIMILAR_H

#include "base/hash.h"
#include "base/status.h"
#include "server/cache/latency.h"
#include "server/cache/vector_stream.h"
#include "server/link/embedder.h"

#include <event2/event.h>
#include <stdbool.h>

struct similar;
struct similar_ask; /* a question, on its way or with its vector */

enum similar_mode { SIMILAR_DRAFT, SIMILAR_ANSWER };
#define SIMILAR_THRESHOLD 0.92f
#define SIMILAR_ENTRIES 100000u
/* A question whose vector is not ready by then is answered without it. The companion model shares its cores with the
 * model, and a computed answer is never wrong. */
#define SIMILAR_WAIT_MS 500u

struct similar_options {
    enum similar_mode mode;
    float threshold; /* of the cosine similarity; 0 = SIMILAR_THRESHOLD */
    uint32_t max_entries; /* 0 = SIMILAR_ENTRIES */
    /* The file that stores vectors for the next start, for an embedder of this identity and dimension. NULL disables
     * it. An existing file that cannot be used is renamed. The file is read while it is opened. */
    const char *path;
    const struct redis_url *shared; /* the Redis whose servers share them; likewise, read while it is opened */
    struct key256 identity;
    uint32_t n_numbers;
};

struct similar_match {
    struct key256 answer;
    float similarity;
};
struct similar_times { /* of quire_now_ns() */
    uint64_t begun_ns, embedded_ns /* there is a vector, or will be none */, looked_ns /* 0: not yet */;
};

int similar_open(struct event_base *base, const struct similar_options *options, struct embedder embedder,
                 struct similar **out, struct quire_error *err);
/* Sets the identity of the source that answers. Vectors are shared with servers whose answers are the same. */
void similar_answered_by(struct similar *s, const struct key256 *identity);
void similar_close(struct similar *s); /* no question is there; NULL is fine */
enum similar_mode similar_mode(const struct similar *s);

/* around: of all but the question; only what has the same is compared. done is called once, never from within; NULL: nothing
 * is near enough. NULL: no memory, or no model to ask. */
struct similar_ask *similar_ask(struct similar *s, const struct key256 *around, const char *question, size_t n,
                                uint32_t tenant, void (*done)(void *context, const struct similar_match *match),
                                void *context);
/* For done. */
struct similar_times similar_ask_times(const struct similar_ask *a);
/* Cancels a question in progress: done is not called. A question whose answer is to be cached still waits for its
 * vector. NULL has no effect. */
void similar_ask_free(struct similar_ask *a);

/* Records that the question is answered under this key until expires_ms. */
void similar_keep(struct similar *s, struct similar_ask *a, const struct key256 *answer, int64_t expires_ms);
/* There is no such answer any more. */
void similar_remove(struct similar *s, const struct key256 *answer);
void similar_clear(struct similar *s);

/* Records the result of a draft: the verified tokens, and the accepted ones. */
void similar_drafted(struct similar *s, float similarity, uint32_t n_tried, uint32_t n_right);

#define SIMILAR_BANDS 5 /* bands of similarity: below 0.85, 0.9, 0.95, 0.98, and above */
extern const float similar_bands[SIMILAR_BANDS - 1];
struct similar_band {
    uint64_t n_drafts, n_tried, n_right;
};
struct similar_stats { /* counters only grow */
    enum similar_mode mode;
    struct cache_layer layer; /* its latency: of looking, once the vector is there */
    struct cache_latency embedding; /* until it is */
    uint64_t n_late; /* the part of the misses without a vector in time */
    uint64_t n_file_bytes, n_dropped; /* dropped: of what was to be written into the file */
    bool is_shared;
    struct vector_stream_stats shared;
    struct similar_band bands[SIMILAR_BANDS];
};
void similar_stats(const struct similar *s, struct similar_stats *out);
#endif
