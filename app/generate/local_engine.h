/* An engine in this process, its tokenizer, and a connection to it over the same frames as everywhere else. Owns all of
 * them. Main thread, on the loop. */
#ifndef QUIRE_APP_GENERATE_LOCAL_ENGINE_H
#define QUIRE_APP_GENERATE_LOCAL_ENGINE_H

#include "engine/engine.h"
#include "engine/options.h"
#include "server/link/completion_source.h"
#include "text/quire_text.h"

#include <event2/event.h>

struct local_engine;

/* Returns when the engine accepts requests; runs the loop until then. closed: called when the connection ends later; the
 * reason is valid during the call. *out is set in any case and needs local_engine_close(). */
int local_engine_open(struct event_base *base, const struct engine_options *options,
                      void (*closed)(void *context, const char *why), void *context, struct local_engine **out,
                      struct quire_error *err);
void local_engine_close(struct local_engine *l); /* NULL is allowed */

/* These are valid until local_engine_close(). */
const struct completion_source *local_engine_source(const struct local_engine *l);
const struct engine_info *local_engine_info(const struct local_engine *l);
struct quire_text *local_engine_text(const struct local_engine *l);

#endif
