/* An engine behind sockets: frames in and out on a libevent loop. protocol.md is what it
 * speaks.
 *
 *     daemon_create(base, &options, &d, err);
 *     engine_open(&engine_options, daemon_sink, d, &engine, err);
 *     daemon_set_engine(d, engine);
 *     daemon_add_connection(d, ends[0], err);   in-process: one end of a wire_stream_pair()
 *     daemon_listen(d, "unix:PATH", NULL, err);   clients elsewhere
 *     ... event_base_dispatch() ...
 *     engine_close(engine); daemon_close(d);   in this order, no loop turn in between
 *
 * Threads: every function comes from the loop's thread; daemon_sink() alone runs on the engine's.
 * The two meet in the outgoing queues, under one mutex; the engine never waits for a client. What a
 * client is not ready to take is kept up to a limit; past it that client is closed. A closed
 * connection cancels its requests. A fault of one connection ends that connection only.
 */
#ifndef QUIRE_SERVER_DAEMON_H
#define QUIRE_SERVER_DAEMON_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/record/shadow_stats.h"
#include "server/wire/stream.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;

struct daemon_options { /* copied by daemon_create */
    struct key256 identity_text;   /* quire_text_identity(); a client with another one is refused */
    struct key256 identity_config; /* SHA-256 of config.json; the same */
    struct key256
        identity_generation; /* of generation_config.json; compared with a client that tells its own. Zero: not told */
    const char *model; /* name, for messages */
    uint32_t max_connections; /* 0 = 64; one more is told so and closed */
    uint32_t max_requests; /* live, of one connection; 0 = 4,096; one more is refused */
    size_t max_queued_bytes; /* of one connection; 0 = 8 MiB; past it, it is closed */
    uint32_t hello_timeout_ms; /* 0 = 5,000 */
    /* May be NULL. Once, on the loop: a drained daemon has become idle. */
    void (*on_idle)(void *context);
    void *context;
};

int daemon_create(struct event_base *base, const struct daemon_options *options, struct daemon **out,
                  struct quire_error *err);

/* The engine_sink; its context is the daemon. */
void daemon_sink(void *context, const struct engine_event *events, size_t n_events);

/* Borrowed until daemon_close(). Before the first connection or listener. */
void daemon_set_engine(struct daemon *d, struct engine *engine);

/* What STATS tells of another policy; borrowed until daemon_close(). NULL: nothing. */
void daemon_set_shadow(struct daemon *d, struct shadow *shadow);

/* The stream is consumed also on failure; NULL, which wire_stream_of_socket() may give, is one. No key is asked for. */
int daemon_add_connection(struct daemon *d, struct wire_stream *stream, struct quire_error *err);

/* "unix:PATH": a socket of mode 0600; a socket file nobody answers at is replaced. "tcp:HOST:PORT":
 * needs key_file (wire_key_read()); port 0 takes a free one. A unix socket may have a key_file too.
 * May be called several times (at most DAEMON_MAX_LISTENERS). QUIRE_INVALID, QUIRE_NOT_FOUND,
 * QUIRE_IO, QUIRE_EXHAUSTED. */
#define DAEMON_MAX_LISTENERS 8
int daemon_listen(struct daemon *d, const char *address, const char *key_file, struct quire_error *err);
/* The address of listener `index` (0 = the first), with the port that the system gave; NULL past
 * the last. */
const char *daemon_address(const struct daemon *d, size_t index);

/* No new requests from here on: tells the engine and every client. Running ones finish; clients have
 * 5 seconds to take the rest, and another one to close, then on_idle comes. */
void daemon_drain(struct daemon *d);
/* The engine has stopped for good: every client is told why, and no more are taken. Those that live are closed within a second. */
void daemon_engine_died(struct daemon *d, const char *why);
/* No request is live and everything queued is delivered; of a drained daemon: nor is anybody
 * connected. */
bool daemon_idle(const struct daemon *d);

uint32_t daemon_n_connections(const struct daemon *d);

/* Closes every connection and listener, removes the unix sockets' files. Does not call the engine,
 * which must have been closed (its thread may call the sink until then). NULL is fine. */
void daemon_close(struct daemon *d);

#endif
