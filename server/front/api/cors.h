/* Web pages of other origins: what a browser must be told before a page of theirs may read a reply. http-api.md §10.
 * Loop's thread.
 */
#ifndef QUIRE_FRONT_CORS_H
#define QUIRE_FRONT_CORS_H

#include "base/status.h"

#include <stdbool.h>

struct front;
struct http_exchange;

/* QUIRE_INVALID: it is neither "*" nor an origin as browsers spell it. */
int cors_check(const char *origin, struct quire_error *err);

/* Whether its pages may read replies. */
bool cors_allows(const struct front *f, const char *origin);
/* Headers for a reply, whatever that will be. False: the request's page may not read it. */
bool cors_headers(const struct front *f, struct http_exchange *x);
/* At the head of a request: those, and true where it was a preflight and is answered. */
bool cors_begin(const struct front *f, struct http_exchange *x);

#endif
