/* The service of POST /complete, GET /stream, GET /cache/stats and POST /cache/clear (docs/reference/http-api.md).
 * Loop's thread.
 *
 * A question becomes a request of /v1/chat/completions to the gateway itself, over a private connection. So choosing a
 * model, fallbacks, budgets and costs are those of every other request. Answers of POST /complete are cached in
 * memory, for each tenant on its own.
 */
#ifndef QUIRE_GATEWAY_COMPLETE_H
#define QUIRE_GATEWAY_COMPLETE_H

#include "base/status.h"
#include "server/gateway/account/ledger.h"

#include <event2/event.h>

struct complete;
struct http_exchange;
struct remote;

struct complete_options {
    struct remote *remote; /* outlives the service */
    struct ledger *ledger; /* outlives the service */
    /* The abstract Unix socket of the engine with this number; NULL: there are not so many, or it is unavailable. */
    const char *(*engine)(void *context, size_t number);
    void *context;
    const char *socket; /* the name of an abstract Unix socket of the gateway; outlives the service */
};

int complete_open(struct event_base *base, const struct complete_options *options, struct complete **out,
                  struct quire_error *err);
/* Ends its calls without a reply: the exchanges have ended before. NULL is allowed. */
void complete_close(struct complete *c);

/* The method of a path of the service; NULL: another path. A slash at the end is ignored. */
const char *complete_method(const char *path);
/* Takes over an exchange with such a path and method. may_clear: the client may clear the cache. */
void complete_start(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear);
/* Drops the cached answers: another configuration may answer otherwise. Returns their number. */
uint64_t complete_clear(struct complete *c);

#endif
