/* The limits of dynamic and static batches: by class, and corrected by load. Sizes are in requests, times in microseconds.
 *
 * With adaptive_batches, two smoothed measures correct the limits before each batch, one step of a fifth at a time:
 * - the queue: waiting requests for each place of the batch. Above BATCHES_LONG_QUEUE the waits become shorter, down to
 *   BATCHES_LEAST_WAIT of what is configured; below 1 they return.
 * - the idle share: of the time from batch to batch, what was not used for tokens: no batch ran, or, by the cost model, a
 *   step took as long as one of a single token. Above BATCHES_IDLE more requests may join a batch, up to
 *   BATCHES_MOST_SIZE times the size; below half of it the size returns. A batch starts no later for it: what fills a
 *   batch is the configured size.
 *
 * Pure: times are those passed to sched_plan, so a replay corrects the same. One thread at a time.
 */
#ifndef QUIRE_SCHEDULER_STATE_BATCHES_H
#define QUIRE_SCHEDULER_STATE_BATCHES_H

#include "scheduler/types/config.h"

#define BATCHES_LONG_QUEUE 1.5
#define BATCHES_LEAST_WAIT 0.0625
#define BATCHES_IDLE 0.5
#define BATCHES_MOST_SIZE 4.0

struct sched_batches {
    double wait, size; /* factors of the configured values; initially 1 */
    double queue, idle; /* smoothed: waiting requests / size; the idle share */
    double used_us; /* time of the last batch's steps, for tokens */
    uint64_t step; /* the last step in it */
    uint64_t began_us, ended_us; /* the last batch; ended_us 0: it runs, or there was none */
    uint32_t n_started; /* requests of the last batch, without those that return after a preemption */
};

void batches_init(struct sched_batches *b);
/* Waiting requests that make a batch full, if the most urgent of them is of this class. */
uint32_t batches_fill(const struct sched_config *config, uint32_t class_index);
/* Requests of a batch with one of this class. */
uint32_t batches_limit(const struct sched_batches *b, const struct sched_config *config, uint32_t class_index);
/* Longest wait of a request of this class for a dynamic batch. */
uint64_t batches_wait_us(const struct sched_batches *b, const struct sched_config *config, uint32_t class_index);

/* Step `step` of a batch, in ascending order; again is allowed. predicted_us: by the cost model; 0: there is none. */
void batches_step(struct sched_batches *b, const struct sched_config *config, uint64_t step, double predicted_us);
/* Call once a batch is over, and when the next one starts with n_waiting requests, `fill` of which make it full. */
void batches_end(struct sched_batches *b, uint64_t now_us);
void batches_begin(struct sched_batches *b, const struct sched_config *config, uint64_t now_us, uint32_t n_waiting,
                   uint32_t fill);

#endif
