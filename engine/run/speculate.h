/* Speculation in the engine: whom to ask for drafts after a step, how many of them, and what became of them.
 *
 * Owns the drafters and what is known of each running sequence. Engine thread only. What a request expects of its answer
 * (`prediction`) is asked first, then the server's method; nobody is asked for a sequence whose newest token is still
 * being sampled.
 */
#ifndef QUIRE_ENGINE_SPECULATE_H
#define QUIRE_ENGINE_SPECULATE_H

#include "base/status.h"
#include "scheduler/driver.h"

#include <stdint.h>

struct engine;
struct engine_options;
struct engine_plan;
struct request;
struct speculation;
struct speculative_config;

/* Host memory, to the byte: all that speculate_create() allocates. */
uint64_t speculate_bytes(const struct speculative_config *config, const struct engine_plan *plan);
/* Into e->speculation; the plan and the scheduler are there. */
int speculate_create(struct engine *e, const struct engine_options *options, struct quire_error *err);
void speculate_destroy(struct engine *e);

/* Whether a request will have drafts. QUIRE_INVALID: it asks for a method that this server does not have. Any thread. */
int speculate_check(const struct engine *e, const struct request *r, struct quire_error *err);
bool speculate_wants(const struct engine *e, const struct request *r);

/* The scheduler has a new sequence, and its owner is known. */
void speculate_placed(struct engine *e, uint32_t seq);
/* Its request has a prediction now: what was thought of drafts until then was thought of others. */
void speculate_predicted(struct engine *e, uint32_t seq);
/* A plan was made: who was preempted gives up what drafters know of it, and is asked for as somebody new later. */
void speculate_planned(struct engine *e, const struct sched_plan *plan);
/* The results of a row with drafts are there: it is counted, and then, in order, each draft that became a token of the
 * answer, before that token's events. `at`: which of the row's. */
void speculate_verified(struct engine *e, const struct sched_row *row);
void speculate_accepted(struct engine *e, uint32_t seq, uint32_t at);
/* A step was committed: its results say whom to ask next. */
void speculate_committed(struct engine *e, const struct sched_committed *committed);
/* Between two steps, before the next is planned: asks, and proposes to the scheduler. */
int speculate_propose(struct engine *e, struct quire_error *err);
/* Its client wants no more of it, and the scheduler has not been told: what it said so far is an answer. Stop strings end
 * answers so, since only the front end knows them. */
void speculate_cancelled(struct engine *e, uint32_t seq);
/* The name may be another's from here on. */
void speculate_retired(struct engine *e, uint32_t seq);

#endif
