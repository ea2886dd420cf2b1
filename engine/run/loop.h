/* The engine's thread. */
#ifndef QUIRE_ENGINE_LOOP_H
#define QUIRE_ENGINE_LOOP_H

#include "engine/run/state.h"

/* What the engine does at each point of a step; their context is the engine. */
extern const struct sched_driver_calls engine_steps;

/* Makes the engine's counters known; by engine_open() before there is an engine thread, then by that. */
void engine_publish(struct engine *e, uint64_t busy_us);

void *engine_main(void *engine);

#endif
