/* What opens an engine, for rank 0 and for the other ranks. */
#ifndef QUIRE_ENGINE_OPEN_H
#define QUIRE_ENGINE_OPEN_H

#include "engine/run/state.h"

/* An engine of which nothing is opened yet; engine_close() it. NULL: out of memory. */
struct engine *engine_new(struct quire_error *err);

/* What the model is, its weights' headers, the device, the plan, in this order: all that can be refused before anything
 * large is allocated or read. */
int engine_prepare(struct engine *e, const struct engine_options *options, struct quire_error *err);

/* The weights and the forward pass of what was prepared. */
int engine_load(struct engine *e, const struct engine_options *options, struct quire_error *err);

#endif
