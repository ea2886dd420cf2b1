/* The OpenAI-compatible HTTP front end: JSON and text on one side, an engine's socket on the other. http-api.md lists
 * every route, parameter and error.
 *
 * A front runs on one libevent loop. Every function here is called on that loop's thread, and so is every callback.
 * Two threads of its own do the long text work. It handles no tensors: the facts about a model come from the engine's
 * HELLO and from its struct quire_text. front_create() makes the process ignore SIGPIPE, and sets the size from which
 * malloc() returns memory to the system.
 */
#ifndef QUIRE_FRONT_FRONT_H
#define QUIRE_FRONT_FRONT_H

#include "base/hash.h"
#include "base/status.h"
#include "request/spec.h"
#include "server/link/embedder.h"
#include "server/link/upstream.h"
#include "server/front/tenant/tenants.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;
struct served_model;
struct http_network;
struct response_cache;
struct cache_price;
struct quire_grammars;
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
    const char *path; /* of a SQLite file; NULL: in memory */
    uint64_t max_bytes; /* 0: nothing is stored */
    uint32_t ttl_s; /* after the last use */
};

struct front_options {
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
};

struct served_model_options {
    const char *const *names; /* at least one; the first is for requests without a name */
    size_t n_names;
    const char *root; /* "root" on /v1/models: path or name of the loaded model */
    const struct quire_text *text; /* outlives the front */
    struct quire_grammars *grammars; /* of this text; NULL: requests with a grammar are rejected; outlives the front */
    bool flexible_whitespace; /* JSON answers may have white space between tokens, unless a request says otherwise */
    enum quire_specials specials_in_messages; /* how special tokens in the text of messages are treated */
    bool keeps_billing_header; /* keeps it in the system prompt of /v1/messages: http-api.md, section 17 */
    const char *tool_call_parser; /* a name of tools/tool_parser.h; NULL or "auto": detected in the chat template */
    const char *reasoning_parser; /* a name of tools/reasoning_parser.h; NULL or "auto" as well */
    struct sampling_defaults sampling; /* from the checkpoint */
    bool for_vectors; /* it answers the routes for vectors and scores, and the first model the others */
    /* NULL: off; outlives the front, which puts it in front of each engine that becomes ready */
    struct response_cache *cache;
    const struct cache_price *price; /* NULL: not configured */
    bool share_answers; /* cached responses are served to every tenant */
    bool compares; /* the cache compares questions (response_cache_compare()): requests include them */
};

/* Opens the listening socket; strings are copied. QUIRE_IO: the address is not available. Add at least one model
 * before the loop runs. */
int front_create(struct event_base *base, const struct front_options *options, struct front **out,
                 struct quire_error *err);
/* Closes connections, cancels requests, frees models and joins the text threads. Do not call it from a callback. */
void front_destroy(struct front *front);

/* Adds a model; strings are copied. /v1/models lists every model. Until its engine is set and ready, /health and all
 * routes that need the engine return 503. Call it before the loop runs. The front frees the model. */
int front_add_model(struct front *front, const struct served_model_options *options, struct served_model **out,
                    struct quire_error *err);

/* Returns the upstream of its engine (server/link/upstream.h). The caller of front_add_model() sets the engine's
 * identity and address there, and receives its events. The front closes it. */
struct upstream *served_model_upstream(struct served_model *model);

/* The source to which requests are submitted: the engine, or the cache in front of it, once it is ready, or the last
 * source that was set. A component that answers in front of it (a cache, a router) gets this source, sets its own and
 * forwards requests to this one. Both are valid until the engine is lost or replaced. Set it only while no request is
 * live, for example when the engine becomes ready. */
struct completion_source served_model_source(const struct served_model *model);
void served_model_set_source(struct served_model *model, struct completion_source source);

/* Returns the embedder for this process' own texts, from a model for vectors. It returns no vectors while the engine
 * is unavailable. */
struct embedder served_model_embedder(struct served_model *model);

uint16_t front_port(const struct front *front);
uint16_t front_metrics_port(const struct front *front); /* 0: no such listener */

/* Rejects new requests with 503 and finishes running ones; replies contain Connection: close. Connections are still
 * accepted, so that probes and new clients get an answer. on_idle is called once, from the loop, when the last
 * connection from before the drain is closed. Call it once. */
void front_drain(struct front *front, void (*on_idle)(void *context), void *context);
/* Ends running requests with an error, for a drain that takes too long. */
void front_cancel(struct front *front);

#endif
