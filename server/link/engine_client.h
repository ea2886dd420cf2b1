/* One connection to an engine, seen from a front end: frames in and out on a libevent loop.
 *
 * Lives on the loop's thread; every callback comes there, from the loop and never from within a
 * call below. Callbacks may call anything here, engine_client_close() included. Owns the
 * stream. Grants CREDIT as it reads, so that an engine never has to hold more for us than we
 * can take. When the engine goes away every request gets on_lost once, then on_closed comes, and
 * the client stays, unusable, until it is closed.
 */
#ifndef QUIRE_FRONT_ENGINE_CLIENT_H
#define QUIRE_FRONT_ENGINE_CLIENT_H

#include "base/status.h"
#include "server/link/completion_source.h"
#include "server/wire/stream.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct engine_client;

/* What the owner of the connection hears. */
struct engine_client_events { /* all set but the last two; hello and stats are borrowed */
    void (*on_ready)(void *context, const struct wire_hello *hello); /* handshake done */
    void (*on_stats)(void *context, const struct wire_stats *stats);
    /* The answer to the oldest engine_client_control() that has none yet. refuse NULL: it is
     * done. */
    void (*on_control)(void *context, const struct wire_refuse *refuse);
    void (*on_drain)(void *context);
    /* The handshake was refused, or the connection is lost; after the on_lost calls. */
    void (*on_closed)(void *context, const char *why);
    /* Nothing at all has come for five seconds, and the connection holds: true, it is waited on. NULL: it is not. */
    bool (*on_silent)(void *context);
    /* The connection has ended, and the engine did not say why. NULL, of either: nobody knows. */
    const char *(*why_ended)(void *context);
};

/* identities are compared with the engine's: a mismatch ends in on_closed, as does an engine that
 * does not answer within 5 seconds (but on_silent). stream: consumed also on failure; NULL is one. ours:
 * identities, model and initial_credit (0 = 1 MiB) are used, and copied; of arithmetic the line of the law alone, "law=2\n",
 * with which the engine's must begin (empty: any will do). key_file: NULL, or the key
 * that the engine must ask for and know too. */
int engine_client_open(struct event_base *base, struct wire_stream *stream, const struct wire_hello *ours,
                       const char *key_file, const struct engine_client_events *events, void *context,
                       struct engine_client **out, struct quire_error *err);
/* "unix:PATH" or "tcp:HOST:PORT" to a connected, non-blocking descriptor (blocking connect, at most
 * timeout_ms). */
int engine_client_connect(const char *address, int timeout_ms, int *fd, struct quire_error *err);
/* No callback comes any more, for requests neither; the engine cancels them. NULL is fine. */
void engine_client_close(struct engine_client *c);

/* It as a source of completions, from on_ready on; borrowed, until it is closed. Its events come from the loop only. */
struct completion_source engine_client_source(struct engine_client *c);
/* One question at a time is on its way; a second is answered with it. n_tenants: whose counters are
 * wanted too. QUIRE_IO as above. */
int engine_client_ask_stats(struct engine_client *c, uint32_t n_tenants);
/* QUIRE_OK: on_control follows, or on_closed. */
int engine_client_control(struct engine_client *c, const char *command);
/* We submit no more: the engine closes this connection when its last request is over. Other clients
 * of the engine do not notice. */
void engine_client_drain(struct engine_client *c);
/* Whether anything came from the other end. Not: somebody accepted the connection, as proxies do, and no engine was there. */
bool engine_client_spoke(const struct engine_client *c);
/* Whether anything came since this was last asked, or went that had waited for room. Of an engine that lives, whatever it computes, an
 * answer to engine_client_ask_stats() does at once. */
bool engine_client_moved(struct engine_client *c);
/* It is taken for lost: on_lost and on_closed follow. why: borrowed until then. */
void engine_client_give_up(struct engine_client *c, const char *why);
uint32_t engine_client_n_live(const struct engine_client *c);

#endif
