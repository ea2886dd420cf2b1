/* Collects the events of a step in order and passes them to the sink. Engine thread. */
#ifndef QUIRE_ENGINE_EVENTS_H
#define QUIRE_ENGINE_EVENTS_H

#include "engine/run/state.h"

/* Into e->run->events. */
int events_create(struct engine *e, struct quire_error *err);
void events_destroy(struct events *events); /* NULL is fine */
void event_token(struct engine *e, struct request *r, uint32_t choice, uint32_t position,
                 const struct k_sample_result *result);
void event_prompt_logprob(struct engine *e, struct request *r, uint32_t position, const struct k_sample_result *result);
/* The choice is over; once only. stop_token: the eos or stop id it ended by, or -1. */
/* Borrowed until events_flush(). */
void event_vector(struct engine *e, struct request *r, const float *vector, uint32_t n);
void event_done(struct engine *e, struct request *r, uint32_t choice, enum engine_finish finish, int64_t stop_token);
/* Passes the queued events to the sink and removes the ids of finished requests. It frees no request, because a full
 * queue may flush in the middle of a walk over a list of requests. */
void events_flush(struct engine *e);
void event_order(struct engine *e,
                 uint64_t order); /* delivered at once: no watch receives it, and no request's events wait for it */
/* Frees what is over. */
void events_reap(struct engine *e);
/* The scheduler no longer knows one choice. Frees the request when that was all that kept it. */
void request_left_scheduler(struct request *r);

#endif
