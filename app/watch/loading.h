/* Opens an engine and shows the progress of its weights if that takes more than two seconds (rows that are repacked,
 * quantized or checked): a bar on a terminal, otherwise one line in the log. Main thread. */
#ifndef QUIRE_APP_WATCH_LOADING_H
#define QUIRE_APP_WATCH_LOADING_H

#include "engine/event.h"
#include "engine/options.h"

struct engine; /* engine/engine.h */

/* engine_open(), using options->loading. */
int loading_engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                        struct quire_error *err);

#endif
