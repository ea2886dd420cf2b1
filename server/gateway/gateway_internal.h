/* The state that the files of the gateway share. Only server/gateway includes it. Loop's thread. */
#ifndef QUIRE_GATEWAY_INTERNAL_H
#define QUIRE_GATEWAY_INTERNAL_H

#include "server/gateway/gateway.h"
#include "server/gateway/pool.h"
#include "server/gateway/relay/relay.h"
#include "server/gateway/remote/remote.h"
#include "server/gateway/target/target.h"

#include <sys/queue.h>

struct attempt;
struct complete;
struct relay;
struct shared;

struct gateway {
    struct event_base *base;
    struct gateway_options options;
    struct http_server *http;
    struct http_server *inside; /* for requests of `complete` and of batches */
    struct local_listener *inside_listener;
    struct complete *complete;
    struct remote *remote;
    struct shared *shared; /* calls for several requests */
    struct pool *pool; /* of the current configuration */
    struct retry_budget retries;
    TAILQ_HEAD(relay_list, relay) relays;
    TAILQ_HEAD(attempt_list, attempt) ended; /* their memory may still be in use */
    struct event *tick; /* for relays */
    uint64_t tick_ms; /* when; 0: not set */
    struct event *probe; /* while a breaker is not closed */
    struct event *save; /* writes statistics to the ledger */
    struct event *bury; /* frees `ended`, outside the callbacks in which they ended */
    int64_t created;
    uint64_t reply_bytes; /* of whole replies that are being received, or that their clients have not taken yet */
    bool draining;
};

/* ---- tick.c ---- */
/* Looks for targets to probe soon: a target has failed. */
void gateway_wants_probe(struct gateway *g);
/* Writes the statistics of experiments to the ledger soon: a request was counted. */
void gateway_wants_save(struct gateway *g);
/* Calls relay_tick() in so many milliseconds, if no earlier call is due. */
void gateway_wants_tick(struct gateway *g, uint32_t ms);

#endif
