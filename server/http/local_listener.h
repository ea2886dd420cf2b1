/* A listener for clients in this process: an abstract Unix socket with a name that the kernel chooses. Connections of other
 * processes are closed. Loop's thread. A socketpair would need no name, but libcurl 7.88 connects a socket that is
 * connected already.
 */
#ifndef QUIRE_HTTP_LOCAL_LISTENER_H
#define QUIRE_HTTP_LOCAL_LISTENER_H

#include "base/status.h"

#include <event2/event.h>

struct local_listener;

/* on_client owns fd, which is not blocking. QUIRE_IO, QUIRE_NO_MEMORY. */
int local_listener_open(struct event_base *base, void (*on_client)(void *context, int fd), void *context,
                        struct local_listener **out, struct quire_error *err);
void local_listener_close(struct local_listener *l); /* NULL is allowed */
/* The socket's name, without its leading NUL byte. Borrowed until local_listener_close(). */
const char *local_listener_name(const struct local_listener *l);

#endif
