/* One request to the response caches of all engines of the gateway. Private to this folder. Loop's thread. */
#ifndef QUIRE_GATEWAY_COMPLETE_CACHE_ENGINES_H
#define QUIRE_GATEWAY_COMPLETE_CACHE_ENGINES_H

#include "server/gateway/complete/complete.h"

#include <stddef.h>

struct cache_engines_call;

/* An engine's reply. status 0: it did not answer. */
struct cache_engines_reply {
    int status;
    const char *body; /* n bytes */
    size_t n;
};

/* Asks each engine with the client's key. on_end is the last call, from the loop, or from within this one if there is
 * no engine or memory is short (n is 0): then *out is NULL. */
void cache_engines_ask(const struct complete_options *o, struct http_exchange *x, const char *method, const char *path,
                       void (*on_end)(void *context, const struct cache_engines_reply *replies, size_t n),
                       void *context, struct cache_engines_call **out);
/* The client has gone: on_end is not called any more. */
void cache_engines_cancel(struct cache_engines_call *c);

#endif
