/* One connection to an engine, seen from a front end: frames in and out on a libevent loop.
 *
 * Lives on the loop's thread; every callback comes there. Owns the descriptor. Grants CREDIT as it
 * reads, so that an engine never has to hold more for us than we can take. When the engine goes away every
 * request gets on_lost once and the client stays, unusable.
 */
#ifndef QUIRE_FRONT_ENGINE_CLIENT_H
#define QUIRE_FRONT_ENGINE_CLIENT_H

#include "base/status.h"
#include "server/wire/wire.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct engine_client;

/* What the owner of one request hears. on_done with last = true, on_refused and on_lost are each the last call. */
struct engine_client_request_events {
    void (*on_accepted)(void *context);
    void (*on_refused)(void *context, const struct wire_refuse *refuse);
    void (*on_token)(void *context, const struct wire_token *token);
    void (*on_prompt_logprob)(void *context, const struct wire_token *token);
    void (*on_done)(void *context, const struct wire_done *done);
    void (*on_lost)(void *context, const char *why);
};

/* What the owner of the connection hears. */
struct engine_client_events {
    void (*on_ready)(void *context, const struct wire_hello *hello); /* handshake done */
    void (*on_stats)(void *context, const struct wire_stats *stats);
    void (*on_drain)(void *context);
    void (*on_closed)(void *context, const char *why); /* handshake refused, or connection lost; after the on_lost calls */
};

/* identities are compared with the engine's: a mismatch ends in on_closed. fd: a connected stream socket, consumed. */
int engine_client_open(struct event_base *base, int fd, const struct wire_hello *ours, const char *key_file,
                       const struct engine_client_events *events, void *context,
                       struct engine_client **out, struct quire_error *err);
/* "unix:PATH" or "tcp:HOST:PORT" to a connected, non-blocking descriptor (blocking connect, at most timeout_ms). */
int engine_client_connect(const char *address, int timeout_ms, int *fd, struct quire_error *err);
void engine_client_close(struct engine_client *c);

/* *request_id: for engine_client_cancel. QUIRE_IO when the connection is gone. */
int engine_client_submit(struct engine_client *c, const struct wire_submit *submit,
                         const struct engine_client_request_events *events, void *context,
                         uint64_t *request_id, struct quire_error *err);
/* No further callback comes for this request. choice -1: the whole request. One choice: only that choice ends, its on_done still comes. */
void engine_client_cancel(struct engine_client *c, uint64_t request_id, int64_t choice);
int engine_client_ask_stats(struct engine_client *c);
void engine_client_drain(struct engine_client *c);
uint32_t engine_client_n_live(const struct engine_client *c);

#endif
