/* The OpenAI-compatible HTTP front end: JSON and text on one side, an engine's socket on the other.
 * http-api.md lists every route, parameter and error.
 *
 * A front lives on one libevent loop; every function here is called on that loop's thread, and so
 * is every callback. Two threads of its own do the long text work. It knows no tensors: what it
 * needs to know of a model it learns from the engine's HELLO and from the struct quire_text it is
 * given. front_create() makes the process ignore SIGPIPE,
 * and sets from which size on its malloc() gives memory back.
 */
#ifndef QUIRE_FRONT_FRONT_H
#define QUIRE_FRONT_FRONT_H

#include "base/hash.h"
#include "base/status.h"
#include "request/spec.h"
#include "server/link/embedder.h"
#include "server/link/upstream.h"
#include "server/front/tenant/tenants.h"
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
struct tls;

/* What a reply may have that is held until it is done, and all of them at once: server/front/output/reply_bytes.h. */
#define FRONT_REPLY_BYTES ((uint64_t)64 << 20)
#define FRONT_REPLIES_BYTES ((uint64_t)128 << 20)

/* What text work may take, besides bodies. The one long text at a time (text_pool.h), its ids, what its reply is made of
 * and the reply: 16 + 3 × 32 MiB. Sixteen middling ones: 512 KiB of text and 2 MiB of ids each. A piece of 256 KiB in
 * the tokenizer: 50 MiB. The 10,000 words whose tokens each of two threads remembers: 80 MiB where all have 255 bytes. */
#define FRONT_TEXT_BYTES ((uint64_t)384 << 20)
/* Bodies that are being read or waited with, of all connections, unless max_body_bytes says otherwise. */
#define FRONT_BODIES_BYTES ((uint64_t)256 << 20)

struct front_listen {
    const char *host; /* name or address; NULL = every IPv4 address */
    uint16_t port; /* 0 = any */
};

struct front_options {
    const char *host; /* name or address; NULL = every IPv4 address */
    uint16_t port; /* 0 = any: front_port() tells */
    int backlog; /* of the listening socket; 0 = 4,096, which the kernel's somaxconn bounds */
    const struct front_listen *metrics; /* NULL; or a second listener, that answers /metrics and /health, without
                                           a key, and nothing else, until the front is destroyed */
    const struct tls *tls; /* NULL: plain HTTP; outlives the front */
    const char *const *allowed_origins; /* of web pages (CORS), checked; they outlive the front */
    size_t n_allowed_origins;
    const char *const
        *allowed_hosts; /* names of this server besides localhost, checked; they outlive the front. Looked at
                                         without keys, on a loopback address or where there are some */
    size_t n_allowed_hosts;
    struct tenants *tenants; /* never NULL; outlives the front, whose loop's thread it belongs to */
    bool tenant_metrics; /* /metrics counts by tenant too */
    bool log_requests; /* a line in the log for each request that generates */
    const char *otlp_endpoint; /* NULL; or where their spans are sent (server/front/observe/otlp.h) */
    const char *version; /* on /version, and in system_fingerprint */
    size_t max_body_bytes; /* 0 = 16 MiB */
    uint32_t max_choices; /* prompts × n of a request; 0 = 4,096 */
    uint32_t max_connections; /* 0 = 4,096; never more than the process may open */
    uint32_t max_connections_per_address; /* 0 = half of that */
    const struct http_network *trusted_proxies; /* n_trusted_proxies that have no such limit; they outlive the front */
    size_t n_trusted_proxies;
    uint32_t head_timeout_ms; /* 0 = 15,000 */
    uint32_t body_timeout_ms; /* 0 = 30,000, besides what 16 KiB/s would need */
    uint32_t idle_timeout_ms; /* 0 = 75,000: a connection between requests */
    uint32_t write_timeout_ms; /* 0 = 60,000: a client that takes nothing */
    uint32_t ping_ms; /* 0 = 15,000: silence of a stream before a ": ping" comment */
};

struct served_model_options {
    const char *const *names; /* at least one; the first is for requests that name none */
    size_t n_names;
    const char *root; /* "root" on /v1/models: path or name of what was loaded */
    const struct quire_text *text; /* outlives the front */
    enum quire_specials specials_in_messages; /* what becomes of special tokens that messages spell */
    bool keeps_billing_header; /* in the system prompt of /v1/messages: http-api.md, section 17 */
    const char *tool_call_parser; /* "hermes", "llama3_json", "none"; NULL or "auto": by the chat template's text */
    struct sampling_defaults sampling; /* the checkpoint's */
    bool for_vectors; /* it answers the routes of vectors and scores, and the first model the others */
    struct response_cache *cache; /* NULL: none; outlives the front, which puts it before each engine that is ready */
    const struct cache_price *price; /* NULL: nobody knows */
    bool share_answers; /* what the cache keeps is given to every tenant */
    bool compares; /* the cache compares questions (response_cache_compare()): they are told to it */
};

/* Opens the listening socket; strings are copied. QUIRE_IO: the address cannot be had. At least one model must be added
 * before the loop runs. */
int front_create(struct event_base *base, const struct front_options *options, struct front **out,
                 struct quire_error *err);
/* Connections are closed, requests cancelled, models freed, text threads joined. Not from inside a callback. */
void front_destroy(struct front *front);

/* One model more; strings are copied. All are on /v1/models. Until its engine is set and has answered, /health and all that
 * needs the engine say 503. Before the loop runs. The front frees it. */
int front_add_model(struct front *front, const struct served_model_options *options, struct served_model **out,
                    struct quire_error *err);

/* Its engine: who adds the model says what it must be, how it comes, and hears of it (server/link/upstream.h). The front closes
 * it. */
struct upstream *served_model_upstream(struct served_model *model);

/* What requests are submitted to: the engine, or the cache before it, once it is ready, or what was set since.
 * Whoever would answer before it (a cache, a router) takes this one, sets its own and asks this one in turn. Both hold until
 * the engine is gone or another comes; set is for a time when no request is live, such as when it gets ready. */
struct completion_source served_model_source(const struct served_model *model);
void served_model_set_source(struct served_model *model, struct completion_source source);

/* Of a model that gives vectors: who gives them to this process' own texts. While there is no engine it gives none. */
struct embedder served_model_embedder(struct served_model *model);

uint16_t front_port(const struct front *front);
uint16_t front_metrics_port(const struct front *front); /* 0: there is no such listener */

/* No new requests (503); what runs is finished, replies say Connection: close. Connections are still
 * accepted, so that probes and who knocks get an answer. on_idle is called once, from the loop, when
 * the last connection of before is gone. Once only. */
void front_drain(struct front *front, void (*on_idle)(void *context), void *context);
/* What still runs ends with an error: for a drain that takes too long. */
void front_cancel(struct front *front);

#endif
