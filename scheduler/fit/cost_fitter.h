/* A cost model that follows the steps of a running engine, for a server without --cost-model.
 *
 * Each step is a sample: its shape and its time. The model minimizes the squared relative errors of recent samples, over
 * prices that are not negative. An error is relative to the measured time, so a step that a busy neighbour made ten
 * times as long counts no more than one that was predicted as nothing.
 *
 * Steps of each size, in powers of two, have a memory of their own: of the last COST_FITTER_MEMORY steps or so. Hours of
 * decoding therefore do not forget what a prompt costs. Sizes without samples lie on the line between their neighbours.
 *
 * A model exists after COST_FITTER_EVERY steps that differ enough in size. It changes at most every COST_FITTER_EVERY
 * steps, and only if its predictions of the remembered steps change by more than COST_FITTER_DEAD_BAND.
 *
 * Pure: the same samples give the same models. A sample costs some 300 multiplications, a fit some 50 us. One thread.
 */
#ifndef QUIRE_SCHEDULER_FIT_COST_FITTER_H
#define QUIRE_SCHEDULER_FIT_COST_FITTER_H

#include "scheduler/cost.h"

#define COST_FITTER_EVERY 256u
#define COST_FITTER_MEMORY 128.0
#define COST_FITTER_LEAST 8.0 /* samples of a size that counts */
#define COST_FITTER_RANGE 3u /* the largest of these sizes is at least as many powers of two above the smallest */
#define COST_FITTER_DEAD_BAND 0.1 /* root of the mean square of relative changes */

struct cost_fitter;

/* QUIRE_NO_MEMORY. The others allocate nothing. */
int cost_fitter_create(struct cost_fitter **out, struct quire_error *err);
void cost_fitter_destroy(struct cost_fitter *f); /* NULL is allowed */

/* A step without block copies took this long. Others, and times that are not above 0, are ignored. */
void cost_fitter_add(struct cost_fitter *f, const struct sched_shape *shape, double us);
/* Returns whether the model changes now; *out, which has passed sched_cost_check(), is then the one in effect. Call it
 * between steps. */
bool cost_fitter_change(struct cost_fitter *f, struct sched_cost *out);
/* Root of the mean square of the relative errors of the model in effect when it came into effect; 0: none did. */
double cost_fitter_error(const struct cost_fitter *f);

#endif
