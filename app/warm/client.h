/* Requests to a server's cache routes over HTTP: one at a time, with retries when the server is busy. One thread at a
 * time. The first cache_client_open() of a process must come before its other threads. */
#ifndef QUIRE_APP_WARM_CLIENT_H
#define QUIRE_APP_WARM_CLIENT_H

#include "base/encoding/json.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>

struct cache_client;

struct cache_client_options { /* borrowed until the client is closed */
    const char *url;     /* http[s]://HOST:PORT, with or without /v1 */
    const char *api_key; /* NULL: none */
    const char *model;   /* NULL: the server's first model */
    bool any_certificate; /* https without checking the certificate: the server is this process */
    const atomic_bool *stop; /* after it is set, calls end soon with QUIRE_EXHAUSTED; NULL: never */
};
int cache_client_open(const struct cache_client_options *options, struct cache_client **out, struct quire_error *err);
void cache_client_close(struct cache_client *c);

/* method: "POST" with a body (borrowed; "model" is added), or "GET" or "DELETE" without one. The caller owns *reply,
 * the object of a 200. Otherwise the server's message: QUIRE_INVALID for a 4xx, QUIRE_IO for other errors. Waits for
 * Retry-After after 429 or 503. */
int cache_client_call(struct cache_client *c, const char *method, const char *path, const json_t *body, json_t **reply,
                      struct quire_error *err);

/* Calls end at this time of quire_now_s() with QUIRE_EXHAUSTED; 0: never. */
void cache_client_set_deadline(struct cache_client *c, double at_s);
/* Returns whether the last reply came from the cache. */
bool cache_client_was_kept(const struct cache_client *c);

#endif
