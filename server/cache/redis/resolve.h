/* A host's addresses, off the loop: the machine's own resolver is asked, which may take its time, in a thread that goes when
 * it is done. The loop's thread.
 */
#ifndef QUIRE_CACHE_REDIS_RESOLVE_H
#define QUIRE_CACHE_REDIS_RESOLVE_H

#include <event2/event.h>
#include <netdb.h>

struct redis_resolve;

/* found: owned by the callback (freeaddrinfo()). NULL: `why` holds the reason. Called once, from the loop; the
 * handle is invalid afterwards. */
typedef void (*redis_resolved)(void *context, struct addrinfo *found, const char *why);

/* NULL: out of memory or threads. Strings are copied. */
struct redis_resolve *redis_resolve_start(struct event_base *base, const char *host, const char *port,
                                          redis_resolved done, void *context);
void redis_resolve_stop(struct redis_resolve *r); /* cancels the callback; does not wait */

#endif
