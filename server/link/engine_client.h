/* One connection to an engine, as seen from a front end: frames in and out on a libevent loop.
 *
 * Runs on the loop's thread. Every callback comes there, from the loop and never from within a call below. Callbacks
 * may call anything here, including engine_client_close(). Owns the stream. Grants CREDIT as it reads, so that an
 * engine never has to hold more output than this side can take. When the connection to the engine ends, every request
 * gets on_lost once, then on_closed comes. The client stays, unusable, until it is closed.
 */
#ifndef QUIRE_LINK_ENGINE_CLIENT_H
#define QUIRE_LINK_ENGINE_CLIENT_H

#include "base/status.h"
#include "server/link/completion_source.h"
#include "server/wire/stats_frame.h"
#include "server/wire/stream.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct engine_client;

/* Events for the owner of the connection. */
struct engine_client_events { /* all set but the last two; hello and stats are borrowed */
    void (*on_ready)(void *context, const struct wire_hello *hello); /* handshake done */
    void (*on_stats)(void *context, const struct wire_stats *stats);
    /* The answer to the oldest unanswered engine_client_control(). refuse NULL: the command was executed. */
    void (*on_control)(void *context, const struct wire_refuse *refuse);
    void (*on_drain)(void *context);
    /* The handshake was refused, or the connection is lost. Comes after the on_lost calls. */
    void (*on_closed)(void *context, const char *why);
    /* No data has come for five seconds, and the connection is still open. Returns true to keep waiting. NULL: do not
     * wait. */
    bool (*on_silent)(void *context);
    /* Called if the connection ended without a reason from the engine. NULL, as the function or as its result: the
     * reason is unknown. */
    const char *(*why_ended)(void *context);
};

/* identities are compared with the engine's. A mismatch ends in on_closed, and so does an engine that does not answer
 * within 5 seconds (see on_silent). stream: consumed also on failure; NULL is a failure. ours: identities, model and
 * initial_credit (0 = 1 MiB) are used, and copied. ours.arithmetic is only the line with the numerics version,
 * "law=2\n", with which the engine's must begin (empty: any). key_file: NULL, or the key that the engine must demand
 * and prove to know. */
int engine_client_open(struct event_base *base, struct wire_stream *stream, const struct wire_hello *ours,
                       const char *key_file, const struct engine_client_events *events, void *context,
                       struct engine_client **out, struct quire_error *err);
/* Connects to "unix:PATH" or "tcp:HOST:PORT" and returns a non-blocking descriptor. Blocks for at most timeout_ms. */
int engine_client_connect(const char *address, int timeout_ms, int *fd, struct quire_error *err);
/* No callback comes any more, not even for requests; the engine cancels them. NULL is allowed. */
void engine_client_close(struct engine_client *c);

/* The client as a source of completions, from on_ready on. Borrowed until the client is closed. Its events come from
 * the loop only. */
struct completion_source engine_client_source(struct engine_client *c);
/* Only one STATS request is in flight; a second call shares its answer. n_tenants: how many tenants' counters to
 * include. Returns QUIRE_IO if not connected. */
int engine_client_ask_stats(struct engine_client *c, uint32_t n_tenants);
/* If it returns QUIRE_OK, on_control or on_closed follows. */
int engine_client_control(struct engine_client *c, const char *command);
/* Submits no more requests: the engine closes this connection when its last request is over. Other clients of the
 * engine are not affected. */
void engine_client_drain(struct engine_client *c);
/* Returns whether any data came from the other end. False: the connection was accepted, as proxies do, but no engine
 * responded. */
bool engine_client_spoke(const struct engine_client *c);
/* Returns whether data came since the last call, or waiting data was sent. A live engine answers
 * engine_client_ask_stats() at once, whatever it computes. */
bool engine_client_moved(struct engine_client *c);
/* Treats the connection as lost: on_lost and on_closed follow. why: borrowed until then. */
void engine_client_give_up(struct engine_client *c, const char *why);
uint32_t engine_client_n_live(const struct engine_client *c);

#endif
