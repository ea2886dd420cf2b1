/* The gateway: one HTTP front door over models, engines and upstream servers. docs/guides/gateway.md.
 *
 * It owns the listener, the targets' states and the running relays. An engine in this process has a front of its own
 * without a listener (front_open_private()): the gateway speaks HTTP with it over a pair of sockets, so that every route
 * of http-api.md works unchanged, and an answer has the same bits as from `quire serve MODEL`. Loop's thread.
 */
#ifndef QUIRE_GATEWAY_H
#define QUIRE_GATEWAY_H

#include "base/status.h"
#include "server/front/api/cors.h"
#include "server/gateway/account/ledger.h"
#include "server/gateway/file/models_file.h"
#include "server/http/http.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct gateway;
struct more_routes;
struct tenants;
struct tls;

/* How the gateway reaches a target that is an engine: the name of its front's abstract Unix socket. */
struct gateway_private {
    /* target: of model. Borrowed until the gateway is closed. NULL: unavailable. */
    const char *(*socket)(void *context, const struct gateway_model *model, const struct gateway_target *target);
    /* Whether the checkpoint of a target that is an engine has a chat template. true as well if it is unavailable. */
    bool (*has_chat)(void *context, const struct gateway_model *model, const struct gateway_target *target);
    void *context;
};

struct gateway_options {
    const char *host; /* NULL: every IPv4 address */
    uint16_t port; /* 0: any; gateway_port() returns it */
    const struct tls *tls; /* NULL: plain HTTP */
    const struct http_limits *limits;
    struct page_rules pages; /* origins and hosts; the rest is set by gateway_open() */
    struct tenants *tenants; /* never NULL; outlives the gateway */
    struct ledger *ledger; /* never NULL; outlives the gateway */
    struct gateway_private engines;
    bool log_requests;
    const char *version;
    /* Without a first byte of an upstream server's reply, or in silence within it, an attempt has failed after so long; 0:
     * never */
    uint32_t upstream_timeout_ms;
    const struct more_routes *more; /* NULL: none; outlives the gateway */
};

/* Takes a hold of config. */
int gateway_open(struct event_base *base, const struct gateway_options *options, const struct gateway_config *config,
                 struct gateway **out, struct quire_error *err);
void gateway_close(struct gateway *g); /* NULL is allowed */
/* The name of the abstract Unix socket for requests of this process (server/front/tenant/inside.h). */
const char *gateway_inside(const struct gateway *g);
uint16_t gateway_port(const struct gateway *g);
/* Another configuration for requests from now on. Targets of the same kind and place keep their state. */
int gateway_use(struct gateway *g, const struct gateway_config *config, struct quire_error *err);
/* As front_drain() and front_cancel(). */
void gateway_drain(struct gateway *g, void (*on_idle)(void *context), void *context);
void gateway_cancel(struct gateway *g);

#endif
