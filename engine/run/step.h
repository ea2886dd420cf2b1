/* A step of the scheduler's driver as the engine carries it out: the functions of struct sched_driver_calls whose
 * context is the engine. Its thread. */
#ifndef QUIRE_ENGINE_STEP_H
#define QUIRE_ENGINE_STEP_H

#include "engine/run/state.h"

/* Into e->run->steps. */
int steps_create(struct engine *e, struct quire_error *err);
void steps_destroy(struct steps *steps); /* NULL is fine */
/* Queues the plan's copies between the KV cache and the host tier. */
int step_move(struct engine *e, const struct sched_plan *plan, struct quire_error *err);
/* Builds the step's arrays and queues it on the backend. */
int step_launch(void *engine, const struct sched_step *step, struct quire_error *err);
/* Until its results are there. Requests with logits that nothing can be drawn from end. */
int step_wait(void *engine, const struct sched_step *step, struct quire_error *err);
/* Results become events, and tokens for the scheduler. */
uint32_t step_take(void *engine, const struct sched_step *step, struct sched_result *results, uint32_t *tokens);
/* Notifies the watches. */
void step_committed(void *engine, const struct sched_committed *committed);
/* Ends every open choice of a request and takes it out of the scheduler. */
void request_end(struct engine *e, struct request *r, enum engine_finish finish, const char *message);

#endif
