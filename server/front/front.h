/* The OpenAI-compatible HTTP front end: JSON and text on one side, an engine's socket on the other. http-api.md lists
 * every route, parameter and error.
 *
 * A front runs on one libevent loop. Every function here is called on that loop's thread, and so is every callback.
 * Two threads of its own do the long text work. It serves models: front_model.h adds them. front_create() makes the process ignore SIGPIPE, and sets the size from which
 * malloc() returns memory to the system.
 */
#ifndef QUIRE_FRONT_FRONT_H
#define QUIRE_FRONT_FRONT_H

#include "base/status.h"
#include "server/front/tenant/tenants.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;
struct http_network;
struct more_routes;
struct tls;

/* Maximum bytes of one reply that is held until it is complete, and of all such replies:
 * server/front/output/reply_bytes.h. */
#define FRONT_REPLY_BYTES ((uint64_t)64 << 20)
#define FRONT_REPLIES_BYTES ((uint64_t)128 << 20)

/* Maximum memory of text work, without bodies. One long text at a time (text_pool.h) with its ids, the parts of its
 * reply and the reply: 16 + 3 × 32 MiB. Sixteen medium texts: 512 KiB of text and 2 MiB of ids each. A piece of 256
 * KiB in the tokenizer: 50 MiB. The 10,000 words whose tokens each of two threads remembers: 80 MiB if all have 255
 * bytes. */
#define FRONT_TEXT_BYTES ((uint64_t)384 << 20)
/* Maximum bytes of bodies that are being received or are waiting, for all connections, unless max_body_bytes changes
 * it. */
#define FRONT_BODIES_BYTES ((uint64_t)256 << 20)

/* Maximum bytes of stored responses, by default. */
#define FRONT_RESPONSES_BYTES ((uint64_t)64 << 20)
#define FRONT_RESPONSES_TTL_S 86400

struct front_listen {
    const char *host; /* name or address; NULL: every IPv4 address */
    uint16_t port; /* 0: any */
};

/* The stored replies of /v1/responses: server/front/responses/response_store.h. */
struct front_responses {
    const char *path; /* path of a SQLite file; NULL: in memory */
    uint64_t max_bytes; /* 0: nothing is stored */
    uint32_t ttl_s; /* after the last use */
};

struct front_options {
    bool is_private; /* no listener: front_accept() brings the clients, whose keys were checked by their side */
    const char *host; /* name or address; NULL: every IPv4 address */
    uint16_t port; /* 0: any; front_port() returns it */
    int backlog; /* for the listening socket; 0 = 4,096; the kernel's somaxconn limits it */
    /* NULL, or a second listener, which answers only /metrics and /health, without a key, until front_destroy() */
    const struct front_listen *metrics;
    const struct tls *tls; /* NULL: plain HTTP; outlives the front */
    const char *const *allowed_origins; /* origins of web pages (CORS), checked; they outlive the front */
    size_t n_allowed_origins;
    /* names of this server besides localhost, checked; they outlive the front. They are compared if the server needs no
     * key, and it listens on a loopback address or this list has entries */
    const char *const *allowed_hosts;
    size_t n_allowed_hosts;
    struct tenants *tenants; /* never NULL; outlives the front; belongs to the loop's thread */
    bool tenant_metrics; /* /metrics also counts by tenant */
    bool log_requests; /* logs a line for each generating request */
    bool strict_fields; /* rejects fields that the server does not know, instead of a warning */
    const char *otlp_endpoint; /* NULL, or the collector of their spans (server/front/observe/otlp.h) */
    const char *version; /* for /version and system_fingerprint */
    size_t max_body_bytes; /* 0 = 16 MiB */
    uint32_t max_choices; /* prompts × n of a request; 0 = 4,096 */
    uint32_t max_connections; /* 0 = 4,096; at most the limit of open descriptors allows */
    uint32_t max_connections_per_address; /* 0 = half of max_connections */
    /* n_trusted_proxies networks without this limit; they outlive the front */
    const struct http_network *trusted_proxies;
    size_t n_trusted_proxies;
    uint32_t head_timeout_ms; /* 0 = 15,000 */
    uint32_t body_timeout_ms; /* 0 = 30,000; plus the time that 16 KiB/s would need */
    uint32_t idle_timeout_ms; /* 0 = 75,000: a connection between requests */
    uint32_t write_timeout_ms; /* 0 = 60,000: a client that reads nothing */
    uint32_t ping_ms; /* 0 = 15,000: silence of a stream before a ": ping" comment */
    struct front_responses responses;
    const struct more_routes *more; /* NULL: none; outlives the front */
    uint64_t max_streamed_bytes; /* of a body that `more` takes in pieces */
};

/* Opens the listening socket; strings are copied. QUIRE_IO: the address is not available. Add at least one model
 * before the loop runs. */
int front_create(struct event_base *base, const struct front_options *options, struct front **out,
                 struct quire_error *err);
/* Closes connections, cancels requests, frees models and joins the text threads. Do not call it from a callback. */
void front_destroy(struct front *front);

uint16_t front_port(const struct front *front); /* 0: it is private */
/* Serves a connected, non-blocking socket: http_server_adopt(). Takes fd, also on failure. */
int front_accept(struct front *front, int fd);
uint16_t front_metrics_port(const struct front *front); /* 0: no such listener */

/* Rejects new requests with 503 and finishes running ones; replies contain Connection: close. Connections are still
 * accepted, so that probes and new clients get an answer. on_idle is called once, from the loop, when the last
 * connection from before the drain is closed. Call it once. */
void front_drain(struct front *front, void (*on_idle)(void *context), void *context);
/* Ends running requests with an error, for a drain that takes too long. */
void front_cancel(struct front *front);

#endif
