/* Checks requests that a web page makes its visitor's browser send. If the server needs no key, every client that can
 * reach the port may use it, and a browser can. See http-api.md §10. Loop's thread.
 */
#ifndef QUIRE_FRONT_FOREIGN_H
#define QUIRE_FRONT_FOREIGN_H

#include "base/status.h"
#include "server/front/api/api_error.h"
#include "server/front/api/cors.h"

#include <stdbool.h>

/* Returns QUIRE_INVALID if it is neither "*" nor a name or address as in a URL, without a port. */
int foreign_check_host(const char *name, struct quire_error *err);
/* Returns whether a Host header, with or without a port, names this machine's loopback. */
bool foreign_host_is_local(const char *host);
/* Returns whether an Origin header belongs to the pages of the server under this Host header: the same scheme, host
 * and port. */
bool foreign_origin_is_own(const char *origin, const char *host, bool tls);

/* Call at the head of a request. Returns false if the server needs no key, and the request comes from a page of
 * another origin or uses another name of this machine. e is then a 403 that names the option. */
bool foreign_may(const struct page_rules *r, const struct http_exchange *x, struct api_error *e);

#endif
