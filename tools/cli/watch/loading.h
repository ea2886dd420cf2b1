/* Opens an engine and shows how far its weights are, where that takes more than two seconds (rows that are regrouped,
 * quantized or checked): a bar where standard error is a terminal, else one line of the log. */
#ifndef QUIRE_TOOLS_WATCH_LOADING_H
#define QUIRE_TOOLS_WATCH_LOADING_H

#include "engine/engine.h"
#include "engine/options.h"

/* engine_open() with options->loading taken. */
int loading_engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                        struct quire_error *err);

#endif
