/* Speculation in the engine: it selects the sequences to draft for after a step and the number of drafts, and counts
 * the results.
 *
 * Owns the drafters and the speculation state of each running sequence. Engine thread only. The request's own
 * `prediction` is used first, then the server's method. A sequence whose newest token is still being sampled gets no
 * drafts.
 */
#ifndef QUIRE_ENGINE_SPECULATE_H
#define QUIRE_ENGINE_SPECULATE_H

#include "base/status.h"
#include "scheduler/driver.h"
#include "scheduler/scheduler.h"

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
void speculate_destroy(struct speculation *s); /* NULL is fine */

/* Checks whether a request can have drafts. Returns QUIRE_INVALID if it requires a method that this server does not
 * have. Any thread. */
int speculate_check(const struct engine *e, const struct request *r, struct quire_error *err);
bool speculate_wants(const struct engine *e, const struct request *r);

/* The scheduler has a new sequence, and its owner is known. */
void speculate_placed(struct engine *e, uint32_t seq);
/* Its request has a prediction now: what was thought of drafts until then was thought of others. */
void speculate_predicted(struct engine *e, uint32_t seq);
/* Called after a plan was made: the drafters drop the state of preempted sequences, which later count as new. */
void speculate_planned(struct engine *e, const struct sched_plan *plan);
/* The results of a row with drafts are there: it is counted, and then, in order, each draft that became a token of the
 * answer, before that token's events. `at`: which of the row's. */
void speculate_verified(struct engine *e, const struct sched_row *row);
void speculate_accepted(struct engine *e, uint32_t seq, uint32_t at);
/* A step was committed: its results say whom to ask next. */
void speculate_committed(struct engine *e, const struct sched_committed *committed);
/* Between two steps, before the next is planned: asks, and proposes to the scheduler. */
int speculate_propose(struct engine *e, struct quire_error *err);
/* Called when the client has cancelled but the scheduler has not been notified: the text so far counts as an answer.
 * Stop strings end answers in this way, because only the front end knows them. */
void speculate_cancelled(struct engine *e, uint32_t seq);
/* The name may be another's from here on. */
void speculate_retired(struct engine *e, uint32_t seq);

#endif
