/* The engine's thread. */
#ifndef QUIRE_ENGINE_LOOP_H
#define QUIRE_ENGINE_LOOP_H

#include "engine/run/state.h"

/* What the engine does at each point of a step; their context is the engine. */
extern const struct sched_driver_calls engine_steps;

/* Into e->run->loop, once there is a scheduler. is_static: an incomplete batch waits. */
int loop_create(struct engine *e, bool is_static, struct quire_error *err);
void loop_destroy(struct loop *loop); /* NULL is fine */

/* Makes the engine's counters known; by engine_open() before there is an engine thread, then by that. */
void engine_publish(struct engine *e, uint64_t busy_us);

void *engine_main(void *engine);

#endif
