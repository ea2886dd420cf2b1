/* What copying one KV block of every layer to the host tier takes: the backend's own copies, as a step that moves several
 * makes them, between arenas that no cache holds.
 */
#ifndef QUIRE_TOOLS_BENCH_COPY_H
#define QUIRE_TOOLS_BENCH_COPY_H

#include "engine/engine.h"
#include "engine/plan.h"

/* Microseconds a block, the median of many. On a backend of its own, opened as the engine of `info` was. */
int bench_copy(const struct engine_options *options, const struct engine_info *info, double *us,
               struct quire_error *err);

#endif
