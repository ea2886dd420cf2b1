/* Requests that a web page has its visitor's browser send: where nobody is asked for a key, being able to reach the port
 * is all that is asked, and a browser can. http-api.md §10. Loop's thread.
 */
#ifndef QUIRE_FRONT_FOREIGN_H
#define QUIRE_FRONT_FOREIGN_H

#include "base/status.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>

struct front;

/* QUIRE_INVALID: it is neither "*" nor a name or address as it stands in a URL, without a port. */
int foreign_check_host(const char *name, struct quire_error *err);
/* Whether a Host header, with or without a port, names this machine's loopback. */
bool foreign_host_is_local(const char *host);
/* Whether an Origin header is that of the pages that a server under this Host header has: their scheme, host and port. */
bool foreign_origin_is_own(const char *origin, const char *host, bool tls);

/* At the head of a request. False, with a 403 in e that names the option: a page of another origin, or under another
 * name of this machine, asks, and no key is asked for. */
bool foreign_may(const struct front *f, const struct http_exchange *x, struct api_error *e);

#endif
