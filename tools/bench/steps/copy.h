/* The time to copy one KV block of every layer to the host tier, with the backend's own copies, as in a step that moves
 * several blocks, between arenas that exceed every cache. One thread. */
#ifndef QUIRE_TOOLS_BENCH_COPY_H
#define QUIRE_TOOLS_BENCH_COPY_H

#include "engine/info.h"
#include "engine/plan.h"

/* Microseconds per block, the median of many. Uses its own backend, opened as for the engine of `info`. */
int bench_copy(const struct engine_options *options, const struct engine_info *info, double *us,
               struct quire_error *err);

#endif
