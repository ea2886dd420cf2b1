/* An engine behind sockets: sends and receives the frames of protocol.md on a libevent loop.
 *
 *     daemon_create(base, &options, &d, err);
 *     engine_open(&engine_options, daemon_sink, d, &engine, err);
 *     daemon_set_engine(d, engine);
 *     daemon_add_connection(d, ends[0], err);   in-process: one end of a wire_stream_pair()
 *     daemon_listen(d, "unix:PATH", NULL, err);   clients elsewhere
 *     ... event_base_dispatch() ...
 *     engine_close(engine); daemon_close(d);   in this order, no loop turn in between
 *
 * Threads: call every function from the loop's thread, except daemon_sink(), which runs on the engine's thread. The
 * two threads share the outgoing queues under one mutex. The engine never waits for a client. The daemon queues the
 * bytes for which a client has no credit, up to a limit; it closes a client that exceeds the limit. It cancels the
 * requests of a closed connection. A fault of one connection ends only that connection. */
#ifndef QUIRE_SERVER_DAEMON_H
#define QUIRE_SERVER_DAEMON_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/event.h"
#include "engine/record/shadow_stats.h"
#include "server/wire/stream.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct engine; /* engine/engine.h */

struct daemon_options { /* copied by daemon_create */
    struct key256 identity_text;   /* quire_text_identity(); a client with another value is rejected */
    struct key256 identity_config; /* SHA-256 of config.json; the same rule */
    struct key256
        identity_generation; /* SHA-256 of generation_config.json; compared if the client sends its own. Zero: unknown */
    const char *model; /* name for messages */
    uint32_t max_connections; /* 0: 64; a further connection receives an ERROR and is closed */
    uint32_t max_requests; /* live requests per connection; 0: 4,096; a further one is rejected */
    size_t max_queued_bytes; /* per connection; 0: 8 MiB; a connection above it is closed */
    uint32_t hello_timeout_ms; /* 0: 5,000 */
    /* May be NULL. Called once, on the loop, when a drained daemon becomes idle. */
    void (*on_idle)(void *context);
    void *context;
};

int daemon_create(struct event_base *base, const struct daemon_options *options, struct daemon **out,
                  struct quire_error *err);

/* The engine_sink; its context is the daemon. Engine's thread. */
void daemon_sink(void *context, const struct engine_event *events, size_t n_events);

/* The daemon borrows engine until daemon_close(). Call before the first connection or listener. */
void daemon_set_engine(struct daemon *d, struct engine *engine);

/* STATS reports the figures of this shadow policy. Borrowed until daemon_close(). NULL: no shadow policy. */
void daemon_set_shadow(struct daemon *d, struct shadow *shadow);

/* Consumes the stream also on failure. NULL, as wire_stream_of_socket() may return it, is an error. Needs no key. */
int daemon_add_connection(struct daemon *d, struct wire_stream *stream, struct quire_error *err);

/* "unix:PATH": a socket of mode 0600; replaces a socket file on which no process listens. "tcp:HOST:PORT": needs
 * key_file (wire_key_read()); port 0 takes a free port. A unix socket may have a key_file too. May be called up to
 * DAEMON_MAX_LISTENERS times. QUIRE_INVALID, QUIRE_NOT_FOUND, QUIRE_IO, QUIRE_EXHAUSTED. */
#define DAEMON_MAX_LISTENERS 8
int daemon_listen(struct daemon *d, const char *address, const char *key_file, struct quire_error *err);
/* Returns the address of listener `index` (0: the first) with the port that the system chose, or NULL after the
 * last. */
const char *daemon_address(const struct daemon *d, size_t index);

/* Stops new requests and notifies the engine and every client. Running requests finish. Clients then have 5 seconds
 * to receive the rest and another second to close; after that, on_idle() is called. */
void daemon_drain(struct daemon *d);
/* Reports that the engine has stopped for good. Every client receives the reason, and new clients are rejected. The
 * existing connections are closed within a second. */
void daemon_engine_died(struct daemon *d, const char *why);
/* Returns whether no request is live and everything queued is delivered. A drained daemon must also have no
 * connection. */
bool daemon_idle(const struct daemon *d);

uint32_t daemon_n_connections(const struct daemon *d);

/* Closes every connection and listener and removes the files of the unix sockets. Does not call the engine: close it
 * first, because its thread may call the sink until then. NULL is allowed. */
void daemon_close(struct daemon *d);

#endif
