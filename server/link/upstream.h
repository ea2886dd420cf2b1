/* The engine as a front end sees it, across starts, losses and restarts: one state, from before the first HELLO to the
 * end.
 *
 *     STARTING    it has never been ready
 *     READY       the handshake is done, requests are accepted
 *     DRAINING    it accepts no new requests, and finishes the others
 *     RESTARTING  it ended, and is being restarted
 *     GONE        it is unavailable; at an address, the upstream tries to reconnect
 *     FAILED      the engine in this process has stopped for good
 *
 * An upstream owns the connection. An engine arrives in one of three ways:
 *     a stream    upstream_attach(): the engine is in this process. It does not return by itself.
 *     an address  upstream_connect(): tries to connect every second, and sends a heartbeat twice a second.
 *     a command   upstream_supervise(): a child of this process, restarted when it ends or hangs.
 *
 * Loop's thread; callbacks come there. It frees nothing that its user owns.
 */
#ifndef QUIRE_LINK_UPSTREAM_H
#define QUIRE_LINK_UPSTREAM_H

#include "base/hash.h"
#include "base/status.h"
#include "server/link/completion_source.h"
#include "server/wire/stats_frame.h"
#include "server/wire/stream.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

enum upstream_state {
    UPSTREAM_STARTING,
    UPSTREAM_READY,
    UPSTREAM_DRAINING,
    UPSTREAM_RESTARTING,
    UPSTREAM_GONE,
    UPSTREAM_FAILED,
};

struct upstream;

/* The identity that an engine must have. Strings are borrowed until upstream_close(). */
struct upstream_identity {
    const char *model; /* for messages */
    struct key256 text; /* quire_text_identity() */
    struct key256 config, generation; /* SHA-256 of config.json, and of generation_config.json */
    /* the line with the numerics version with which its arithmetic begins, "law=2\n"; NULL: any */
    const char *arithmetic;
    const char *key_file; /* for tcp, else NULL */
};

/* The sender of requests; all set. */
struct upstream_user {
    /* Another engine replaces the last one, whose requests must end now. The old source is gone, and upstream_source()
     * returns another. The new engine may not have completed its handshake. */
    void (*on_replace)(void *context);
    void (*on_replaced)(void *context);
    /* The handshake is done; hello is borrowed. Returns false if this engine cannot be used; it is then lost. */
    bool (*on_ready)(void *context, const struct wire_hello *hello);
    void (*on_stats)(void *context, const struct wire_stats *stats);
    /* As in engine_client.h. */
    void (*on_control)(void *context, const struct wire_refuse *refuse);
    /* The connection has ended; its requests have received on_lost. */
    void (*on_closed)(void *context);
    /* Requests statistics, as upstream_ask_stats() does. */
    void (*ask)(void *context);
};

/* The owner, which opened it. Each function may be NULL. */
struct upstream_owner {
    /* Requests are accepted. is_first: it was never ready before. */
    void (*ready)(void *context, bool is_first);
    /* The first engine at the address is not available yet; why is the reason. Every ten seconds. */
    void (*waiting)(void *context, const char *why);
    /* The engine is gone and does not return: no request can be served. what: "the engine is unavailable", or another
     * failure; why: "", or the reason. upstream_attach() may follow, but not from within this call. */
    void (*lost)(void *context, const char *what, const char *why);
    /* From upstream_close(): the child had already failed, or had to be killed. */
    void (*ended_badly)(void *context);
    void *context;
};

int upstream_open(struct event_base *base, const struct upstream_user *user, void *user_context, struct upstream **out,
                  struct quire_error *err);
/* No callback comes any more except ended_badly. NULL is allowed. */
void upstream_close(struct upstream *u);

/* Call before the next three; copied. */
void upstream_set_identity(struct upstream *u, const struct upstream_identity *identity,
                           const struct upstream_owner *owner);
/* Attaches the engine at the other end of stream, in place of the last one. stream is consumed also on failure; NULL
 * is a failure. */
int upstream_attach(struct upstream *u, struct wire_stream *stream, struct quire_error *err);
/* Call once. Waits for an unavailable engine, also the first time. Fails if waiting cannot help: an invalid address,
 * or a key that cannot be read. address: borrowed. */
int upstream_connect(struct upstream *u, const char *address, struct quire_error *err);
/* Call once. argv: NULL-terminated, borrowed. tries: maximum consecutive starts. Starts the child at once. */
int upstream_supervise(struct upstream *u, char *const *argv, uint32_t tries, struct quire_error *err);

enum upstream_state upstream_state(const struct upstream *u);
/* Returns whether the handshake is done and the connection alive: READY, DRAINING, or FAILED for the moment until it
 * ends. */
bool upstream_is_connected(const struct upstream *u);
bool upstream_was_ready(const struct upstream *u);
/* In RESTARTING: when the engine is expected, on the clock of quire_now_ms(). Otherwise 0. */
uint64_t upstream_returns_ms(const struct upstream *u);
uint32_t upstream_n_restarts(const struct upstream *u);
/* self is NULL without an engine. Valid until the next on_replace. */
struct completion_source upstream_source(const struct upstream *u);

/* As in engine_client.h. QUIRE_IO: not connected. */
int upstream_ask_stats(struct upstream *u, uint32_t n_tenants);
int upstream_control(struct upstream *u, const char *command);

/* This front end drains: a lost engine is neither waited for nor restarted. */
void upstream_drain(struct upstream *u);
/* The engine in this process has stopped for good. hangs: NULL, or why no more data comes from it; then its requests
 * end now. */
void upstream_fail(struct upstream *u, const char *hangs);

#endif
