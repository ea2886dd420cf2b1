/* Functions that open an engine, for rank 0 and for the other ranks. */
#ifndef QUIRE_ENGINE_OPEN_H
#define QUIRE_ENGINE_OPEN_H

#include "engine/run/state.h"

/* An engine of which nothing is opened yet; engine_close() it. NULL: out of memory. */
struct engine *engine_new(struct quire_error *err);

/* Prepares the model's description, its weights' headers, the device and the plan, in this order. Every check that
 * can fail happens before anything large is allocated or read. */
int engine_prepare(struct engine *e, const struct engine_options *options, struct quire_error *err);

/* The weights and the forward pass of what was prepared. */
int engine_load(struct engine *e, const struct engine_options *options, struct quire_error *err);

#endif
