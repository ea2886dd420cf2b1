/* The loop of steps, for whoever runs a scheduler: the engine, the simulator, the shadow, a recording.
 *
 *     sched_driver_turn():  plan → launch → results of the step that is overlap_depth before it → commit → retire
 *
 * A table of functions says what launching and waiting mean and what the rows gave; the driver keeps the steps in
 * flight. Who has a clock that decides when a step is over, or a record that says
 * so, calls the parts of a turn itself.
 *
 * Pure, as the scheduler is; one thread, the scheduler's. Nothing is allocated after sched_driver_create().
 */
#ifndef QUIRE_SCHEDULER_DRIVER_H
#define QUIRE_SCHEDULER_DRIVER_H

#include "scheduler/scheduler.h"

struct sched_driver;

/* A step from its launch to its commit. */
struct sched_step {
    const struct sched_plan *plan;
    uint32_t slot; /* 0 … overlap_depth: steps in flight have different ones */
};

struct sched_committed {
    const struct sched_step *step;
    uint32_t n_results;
    const struct sched_result *results; /* [n_results] each; valid during the call */
    const bool *finished, *discarded;   /* as sched_commit() gave them */
};

/* Functions may be NULL where nothing is to be done. What they return other than QUIRE_OK ends the turn, and the
 * driver is of no use any more. */
struct sched_driver_calls {
    /* Every plan, also one without rows: its admissions, refusals and moves. */
    int (*planned)(void *context, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err);
    /* Its rows are to run. */
    int (*launch)(void *context, const struct sched_step *step, struct quire_error *err);
    /* Its results are wanted now. */
    int (*wait)(void *context, const struct sched_step *step, struct quire_error *err);
    /* One result, made by sched_result_of(), of each row that gives tokens and whose sequence is not over, in row order;
     * returns how many. There is room for the results of all rows, and for all their tokens. */
    uint32_t (*take)(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens);
    void (*committed)(void *context, const struct sched_committed *committed);
    /* The name may be another's from here on. */
    void (*retired)(void *context, uint32_t seq);
};

/* A result of the row with the first of its tokens: no draft accepted, not finished. */
static inline struct sched_result sched_result_of(const struct sched_row *row, const uint32_t *tokens)
{
    /* All members named: else the compiler clears the whole struct first, and waits for it to come back as one. */
    return (struct sched_result){.seq = row->seq, .n_accepted = 0, .tokens = tokens, .finished = false};
}

/* Of a scheduler that nobody has planned with. It, the table and the context stay the caller's and must outlive the
 * driver. QUIRE_NO_MEMORY. */
int sched_driver_create(struct sched *s, const struct sched_driver_calls *calls, void *context,
                        struct sched_driver **out, struct quire_error *err);
void sched_driver_destroy(struct sched_driver *d); /* NULL is fine */

/* Plans the next step, launches it when it has rows, and commits the steps that the overlap leaves no room for: all,
 * when there was nothing to launch, or when most who run wait for the host to see their tokens. These would else skip every
 * other step, or be two halves that take turns, where a step for all takes hardly longer. Then retires. */
int sched_driver_turn(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err);

/* The parts of a turn. */
int sched_driver_plan(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err);
/* The oldest step in flight; QUIRE_INVALID when there is none. */
int sched_driver_commit(struct sched_driver *d, struct quire_error *err);
void sched_driver_retire(struct sched_driver *d);

uint32_t sched_driver_in_flight(const struct sched_driver *d);

#endif
