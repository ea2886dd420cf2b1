/* Vectors of questions, shared by the servers of one Redis. Each server appends additions to its index to a stream,
 * replays the stream when it becomes available, and then follows it. Entries are {by: server that appended, v1: a
 * record of vector_records.h}, or {by, clear: ""}, which drops all earlier entries. Redis trims the stream to about
 * max_entries, and deletes it when nothing was appended for as long as an answer may be cached.
 *
 * It has its own link, so that lookups of answers do not queue behind a batch of vectors. It polls in intervals,
 * because a blocking command would look like a Redis that hangs. Loop's thread, which never waits.
 *
 * Entries are untrusted until checked: shape, order, sums, sizes, length 1, expiry. Entries that fail the check are
 * counted and ignored. */
#ifndef QUIRE_CACHE_VECTOR_STREAM_H
#define QUIRE_CACHE_VECTOR_STREAM_H

#include "base/hash.h"
#include "server/cache/redis/url.h"
#include "server/similar/vector_log.h"

#include <event2/event.h>

struct vector_stream;

struct vector_stream_events {
    vector_log_told *told; /* an entry of another server, or of this one before a restart: unexpired, with length 1 */
    void (*cleared)(void *context);
    void *context;
};

/* identity: of the source that answers; embedder: of the model that makes vectors. An unreachable Redis is not an
 * error here. */
int vector_stream_open(struct event_base *base, const struct redis_url *url, const struct key256 *identity,
                       const struct key256 *embedder, uint32_t n_numbers, uint32_t max_entries,
                       struct vector_stream_events events, struct vector_stream **out, struct quire_error *err);
/* Waits up to wait_ms until appended entries are acknowledged. NULL has no effect. */
void vector_stream_close(struct vector_stream *s, uint32_t wait_ms);

/* If Redis is not reachable, or 16 MiB are pending, the vector is dropped and counted. */
void vector_stream_add(struct vector_stream *s, const struct key256 *around, const float *vector,
                       const struct key256 *answer, int64_t expires_ms);
void vector_stream_remove(struct vector_stream *s, const struct key256 *answer);
/* Takes effect as soon as Redis is reachable. Earlier entries of other servers that still arrive are ignored. */
void vector_stream_clear(struct vector_stream *s);

struct vector_stream_stats { /* counters only grow */
    bool connected;
    uint64_t n_taken, n_refused, n_appended, n_dropped;
};
void vector_stream_stats(const struct vector_stream *s, struct vector_stream_stats *out);
#endif
