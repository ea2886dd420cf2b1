/* An engine process that quire serve --restart started: the parent handles signals, and its end is this process's end.
 * Main thread. */
#ifndef QUIRE_APP_ENGINE_CHILD_H
#define QUIRE_APP_ENGINE_CHILD_H

#include "base/status.h"
#include "server/daemon/daemon.h"

#include <event2/event.h>

struct engine_child;

/* Ignores the signals that the parent handles. *out is NULL if no parent started this process. */
int engine_child_join(struct engine_child **out, struct quire_error *err);
/* Adds the parent's connection to the daemon, and ends the loop when the parent is gone. */
int engine_child_serve(struct engine_child *c, struct event_base *base, struct daemon *daemon, struct quire_error *err);
void engine_child_end(struct engine_child *c); /* NULL is allowed */

#endif
