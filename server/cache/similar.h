/* Answers to similar questions: a question's vector, by a model beside the one that answers, and the nearest that was
 * answered in the same context. What is found is a draft, which the model checks token by token; or, where the server is
 * asked for that, an answer.
 *
 * The vectors are here (server/similar/vector_index.h), what was answered is the response cache's. Loop's thread.
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
/* A question whose vector is not there by then is answered without: the model beside shares its cores with the one that
 * answers, and an answer that is computed is never wrong. */
#define SIMILAR_WAIT_MS 500u

struct similar_options {
    enum similar_mode mode;
    float threshold; /* of the cosine; 0 = SIMILAR_THRESHOLD */
    uint32_t max_entries; /* 0 = SIMILAR_ENTRIES */
    /* Where vectors are kept for who begins again, of an embedder of this identity that gives so many numbers; NULL: nowhere.
     * What is there already and cannot be used is renamed. Read while it is opened. */
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
    uint64_t begun_ns, embedded_ns /* there is a vector, or will be none */, looked_ns /* 0: there is none */;
};

int similar_open(struct event_base *base, const struct similar_options *options, struct embedder embedder,
                 struct similar **out, struct quire_error *err);
/* Who answers from here on: what is shared is shared with servers whose answers are the same. */
void similar_answered_by(struct similar *s, const struct key256 *identity);
void similar_close(struct similar *s); /* no question is there; NULL is fine */
const struct similar_options *similar_options(const struct similar *s);

/* around: of all but the question; only what has the same is compared. done is called once, never from within; NULL: nothing
 * is near enough. NULL: no memory, or no model to ask. */
struct similar_ask *similar_ask(struct similar *s, const struct key256 *around, const char *question, size_t n,
                                uint32_t tenant, void (*done)(void *context, const struct similar_match *match),
                                void *context);
/* For done. */
struct similar_times similar_ask_times(const struct similar_ask *a);
/* On its way: done does not come; but what is to be kept waits for its vector. NULL is fine. */
void similar_ask_free(struct similar_ask *a);

/* What was asked is answered under this key, until then. */
void similar_keep(struct similar *s, struct similar_ask *a, const struct key256 *answer, int64_t expires_ms);
/* There is no such answer any more. */
void similar_remove(struct similar *s, const struct key256 *answer);
void similar_clear(struct similar *s);

/* What became of a draft: tokens of it that were tried, and those that were right. */
void similar_drafted(struct similar *s, float similarity, uint32_t n_tried, uint32_t n_right);

#define SIMILAR_BANDS 5 /* of similarity: below 0.85, 0.9, 0.95, 0.98, and above */
extern const float similar_bands[SIMILAR_BANDS - 1];
struct similar_stats { /* counters only grow */
    struct cache_layer_stats layer; /* its latency: of looking, once the vector is there */
    struct cache_latency embedding; /* until it is */
    uint64_t n_late; /* of the misses: no vector in time, or none */
    uint64_t n_entries, n_bytes, n_evicted;
    uint64_t n_file_bytes, n_dropped; /* dropped: of what was to be written into the file */
    bool is_shared;
    struct vector_stream_stats shared;
    struct {
        uint64_t n_drafts, n_tried, n_right;
    } bands[SIMILAR_BANDS];
};
void similar_stats(const struct similar *s, struct similar_stats *out);
#endif
