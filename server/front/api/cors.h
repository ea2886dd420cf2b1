/* CORS for web pages of other origins: the headers that a browser needs before a page may read a reply. See
 * http-api.md §10. Loop's thread.
 */
#ifndef QUIRE_FRONT_CORS_H
#define QUIRE_FRONT_CORS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct http_exchange;

/* Which web pages may use a server: its front end's, or a gateway's. Borrows all. */
struct page_rules {
    const char *const *origins; /* [n_origins], checked by cors_check() */
    size_t n_origins;
    const char *const *hosts; /* [n_hosts]: names of this server besides localhost, checked by foreign_check_host() */
    size_t n_hosts;
    bool asks_key; /* every request needs one */
    bool is_local; /* the listener is on a loopback address */
    bool has_tls;
};

/* Returns QUIRE_INVALID if it is neither "*" nor an origin as browsers spell it. */
int cors_check(const char *origin, struct quire_error *err);

/* Returns whether pages of this origin may read replies. */
bool cors_allows(const struct page_rules *r, const char *origin);
/* Adds the CORS headers, whatever the reply will be. Returns false if the request's page may not read it. */
bool cors_headers(const struct page_rules *r, struct http_exchange *x);
/* Call at the head of a request: adds the headers. Returns true if the request was a preflight, which is then
 * answered. */
bool cors_begin(const struct page_rules *r, struct http_exchange *x);

#endif
