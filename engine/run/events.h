/* What happened in a step, in order, on its way to the sink. The engine's thread. */
#ifndef QUIRE_ENGINE_EVENTS_H
#define QUIRE_ENGINE_EVENTS_H

#include "engine/run/state.h"

int events_create(struct engine *e, struct quire_error *err);
void events_destroy(struct engine *e);
void event_token(struct engine *e, struct request *r, uint32_t choice, uint32_t position,
                 const struct k_sample_result *result);
void event_prompt_logprob(struct engine *e, struct request *r, uint32_t position, const struct k_sample_result *result);
/* The choice is over; once only. stop_token: the eos or stop id it ended by, or -1. */
/* Borrowed until events_flush(). */
void event_vector(struct engine *e, struct request *r, const float *vector, uint32_t n);
void event_done(struct engine *e, struct request *r, uint32_t choice, enum engine_finish finish, int64_t stop_token);
/* Hands the queued events to the sink and forgets the ids of requests that are over. Frees none: a
 * full queue may flush while somebody walks a list of requests. */
void events_flush(struct engine *e);
void event_order(struct engine *e,
                 uint64_t order); /* given at once: no watch is told, and no request's events wait for it */
/* Frees what is over. */
void events_reap(struct engine *e);
/* The scheduler no longer knows one choice. Frees the request when that was all that kept it. */
void request_left_scheduler(struct request *r);

#endif
