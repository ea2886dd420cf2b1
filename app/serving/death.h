/* Watches for the death of an engine in this process. Main thread, on the loop, unless noted. */
#ifndef QUIRE_APP_SERVING_DEATH_H
#define QUIRE_APP_SERVING_DEATH_H

#include "base/status.h"
#include "engine/watch.h"

#include <event2/event.h>
#include <stdbool.h>

/* An engine with a failed backend cannot serve. died(context, why) is called on the loop (may be NULL). One second
 * after the error was sent to all pending requests the loop ends, and serving_death_was() is true. Register
 * serving_death_watch() with the engine. */
struct serving_death;
int serving_death_begin(struct event_base *base, void (*died)(void *context, const char *why), void *context,
                        struct serving_death **out, struct quire_error *err);
const struct engine_watch *serving_death_watch(struct serving_death *death);
/* Call it after the engine is open. If the group of its ranks has been over for half a second and the engine's thread
 * does not report it, this module does, so that pending requests get the error even if that thread hangs.
 * QUIRE_INTERNAL. */
int serving_death_mind(struct serving_death *death, const struct engine *engine, struct quire_error *err);
/* Returns the reason of the group's end if the engine hangs, otherwise NULL. It lives as long as death. NULL is
 * allowed. */
const char *serving_death_hangs(const struct serving_death *death);
/* Call it after the loop, before engine_close(): if the engine's thread hangs, the process ends here with status 1,
 * because joining it would block. */
void serving_death_leave(const struct serving_death *death);
bool serving_death_was(const struct serving_death *death); /* false for NULL */
void serving_death_end(struct serving_death *death); /* after engine_close(); NULL is allowed */

#endif
