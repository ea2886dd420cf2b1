/* The vectors of questions, shared by the servers of one Redis: what a server's index is told is appended to a stream, which each
 * replays when it is there (again), and follows. Entries are {by: who appended it, v1: a record of vector_records.h}, or
 * {by, clear: ""}: what stood before was forgotten. Redis trims the stream to about max_entries; it goes by itself when nobody
 * has appended for as long as an answer may be kept.
 *
 * It has a link of its own, so that no lookup of an answer stands behind a batch of vectors, and asks in pauses: a command that
 * blocks would be taken for a Redis that hangs. Loop's thread, which never waits.
 *
 * What comes is hostile until checked: shape, order, sums, sizes, length 1, expiry. What does not pass is counted, and left out. */
#ifndef QUIRE_CACHE_VECTOR_STREAM_H
#define QUIRE_CACHE_VECTOR_STREAM_H

#include "base/hash.h"
#include "server/cache/redis/url.h"
#include "server/similar/vector_log.h"

#include <event2/event.h>

struct vector_stream;

struct vector_stream_events {
    vector_log_told *told; /* what another server appended, or this one before it began again: in time, of length 1 */
    void (*cleared)(void *context);
    void *context;
};

/* identity: of those who answer; embedder: of those who make vectors. Never fails because the Redis is not there. */
int vector_stream_open(struct event_base *base, const struct redis_url *url, const struct key256 *identity,
                       const struct key256 *embedder, uint32_t n_numbers, uint32_t max_entries,
                       struct vector_stream_events events, struct vector_stream **out, struct quire_error *err);
/* Waits at most so long until what was appended is acknowledged. NULL is fine. */
void vector_stream_close(struct vector_stream *s, uint32_t wait_ms);

/* Dropped and counted where the Redis is not there, or 16 MiB wait already. */
void vector_stream_add(struct vector_stream *s, const struct key256 *around, const float *vector,
                       const struct key256 *answer, int64_t expires_ms);
void vector_stream_remove(struct vector_stream *s, const struct key256 *answer);
/* As soon as the Redis is there. What others appended before, and comes still, is not told. */
void vector_stream_clear(struct vector_stream *s);

struct vector_stream_stats { /* counters only grow */
    bool connected;
    uint64_t n_taken, n_refused, n_appended, n_dropped;
};
void vector_stream_stats(const struct vector_stream *s, struct vector_stream_stats *out);
#endif
