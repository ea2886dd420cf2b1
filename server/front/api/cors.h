/* CORS for web pages of other origins: the headers that a browser needs before a page may read a reply. See
 * http-api.md §10. Loop's thread.
 */
#ifndef QUIRE_FRONT_CORS_H
#define QUIRE_FRONT_CORS_H

#include "base/status.h"

#include <stdbool.h>

struct front;
struct http_exchange;

/* Returns QUIRE_INVALID if it is neither "*" nor an origin as browsers spell it. */
int cors_check(const char *origin, struct quire_error *err);

/* Returns whether pages of this origin may read replies. */
bool cors_allows(const struct front *f, const char *origin);
/* Adds the CORS headers, whatever the reply will be. Returns false if the request's page may not read it. */
bool cors_headers(const struct front *f, struct http_exchange *x);
/* Call at the head of a request: adds the headers. Returns true if the request was a preflight, which is then
 * answered. */
bool cors_begin(const struct front *f, struct http_exchange *x);

#endif
