/* An engine as a front end has it, whatever happens to it: one state, from before its first word to its end.
 *
 *     STARTING    it has never been ready
 *     READY       the handshake is done, requests are taken
 *     DRAINING    it takes nothing new, and finishes what it has
 *     RESTARTING  it is gone, and is being started again
 *     GONE        it is gone, or is waited for again
 *     FAILED      the engine in this process has stopped for good
 *
 * An upstream owns the connection. How an engine comes is one of three:
 *     a stream    upstream_attach(): the engine is in this process. One that is gone does not come back by itself.
 *     an address  upstream_connect(): it is looked for every second, and asked for a sign of life twice a second.
 *     a command   upstream_supervise(): it is a child of this process, and is started again when it ends or hangs.
 *
 * Loop's thread; callbacks come there. It frees nothing of its user's.
 */
#ifndef QUIRE_LINK_UPSTREAM_H
#define QUIRE_LINK_UPSTREAM_H

#include "base/hash.h"
#include "base/status.h"
#include "server/link/completion_source.h"
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

/* What an engine must prove to be. Strings are borrowed until upstream_close(). */
struct upstream_identity {
    const char *model; /* for messages */
    struct key256 text; /* quire_text_identity() */
    struct key256 config, generation; /* SHA-256 of config.json, and of generation_config.json */
    const char *arithmetic; /* the line with which its arithmetic begins, "law=2\n"; NULL: any */
    const char *key_file; /* for tcp, else NULL */
};

/* Who sends requests to it; all set. */
struct upstream_user {
    /* Another engine takes the place of the last one, whose requests are to end now. The source that they went to is no
     * more, and upstream_source() is another. May be an engine that has not spoken yet. */
    void (*on_replace)(void *context);
    void (*on_replaced)(void *context);
    /* The handshake is done; hello is borrowed. False: it cannot be served with, and is lost. */
    bool (*on_ready)(void *context, const struct wire_hello *hello);
    void (*on_stats)(void *context, const struct wire_stats *stats);
    /* As of engine_client.h. */
    void (*on_control)(void *context, const struct wire_refuse *refuse);
    /* The connection has ended; its requests have got on_lost. */
    void (*on_closed)(void *context);
    /* Asks for statistics, as upstream_ask_stats() does. */
    void (*ask)(void *context);
};

/* Who opened it. Each may be NULL. */
struct upstream_owner {
    /* Requests are taken. is_first: it was never ready before. */
    void (*ready)(void *context, bool is_first);
    /* The first engine at the address is not there yet: why. Every ten seconds. */
    void (*waiting)(void *context, const char *why);
    /* It is gone and does not come back: nothing can be served. what: "the engine is unavailable", or what else went wrong; why:
     * "", or the reason. upstream_attach() may follow, not from inside. */
    void (*lost)(void *context, const char *what, const char *why);
    /* upstream_close(): the child had failed by then, or had to be killed. */
    void (*ended_badly)(void *context);
    void *context;
};

int upstream_open(struct event_base *base, const struct upstream_user *user, void *user_context, struct upstream **out,
                  struct quire_error *err);
/* No callback comes any more but ended_badly. NULL is allowed. */
void upstream_close(struct upstream *u);

/* Before the next three; copied. */
void upstream_set_identity(struct upstream *u, const struct upstream_identity *identity,
                           const struct upstream_owner *owner);
/* An engine at the other end of stream, which is consumed also on failure; NULL is one. In place of the last one, if any. */
int upstream_attach(struct upstream *u, struct wire_stream *stream, struct quire_error *err);
/* Once. One that is not there is waited for, also the first time. What waiting does not mend fails: an address that is
 * none, a key that cannot be read. address: borrowed. */
int upstream_connect(struct upstream *u, const char *address, struct quire_error *err);
/* Once. argv: NULL-terminated, borrowed; tries: starts in a row, at most. The child is started at once. */
int upstream_supervise(struct upstream *u, char *const *argv, uint32_t tries, struct quire_error *err);

enum upstream_state upstream_state(const struct upstream *u);
/* The handshake is done, and the connection alive: READY, DRAINING, or FAILED for the moment until it ends. */
bool upstream_is_connected(const struct upstream *u);
bool upstream_was_ready(const struct upstream *u);
/* RESTARTING: when it is expected, on the clock of quire_now_ms(). Else 0. */
uint64_t upstream_returns_ms(const struct upstream *u);
uint32_t upstream_n_restarts(const struct upstream *u);
/* self NULL: there is none. Until the next on_replace. */
struct completion_source upstream_source(const struct upstream *u);

/* As of engine_client.h. QUIRE_IO: it is not connected. */
int upstream_ask_stats(struct upstream *u, uint32_t n_tenants);
int upstream_control(struct upstream *u, const char *command);

/* This front end drains: an engine that goes is not waited for, nor started again. */
void upstream_drain(struct upstream *u);
/* The engine in this process has stopped for good. hangs: NULL; or why nothing more comes from it: requests end now. */
void upstream_fail(struct upstream *u, const char *hangs);

#endif
