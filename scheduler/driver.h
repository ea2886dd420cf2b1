/* The loop of steps, for every user of a scheduler: the engine, the simulator, the shadow policy, a recording.
 *
 * sched_driver_turn(): plan → launch → results of the step overlap_depth before → commit → retire
 *
 * A table of functions defines launching, waiting and the results of rows; the driver keeps the steps in flight. A
 * caller whose clock or record decides when a step ends calls the parts of a turn itself.
 *
 * Pure, like the scheduler; on the scheduler's thread. Nothing is allocated after sched_driver_create().
 */
#ifndef QUIRE_SCHEDULER_DRIVER_H
#define QUIRE_SCHEDULER_DRIVER_H

#include "scheduler/scheduler.h"
#include "scheduler/types/plan.h"

struct sched_driver;

/* A step from its launch to its commit. */
struct sched_step {
    const struct sched_plan *plan;
    uint32_t slot; /* 0 … overlap_depth: steps in flight have different slots */
};

struct sched_committed {
    const struct sched_step *step;
    uint32_t n_results;
    const struct sched_result *results; /* [n_results] each; valid during the call */
    const bool *finished, *discarded;   /* as set by sched_commit() */
};

/* Functions may be NULL if there is nothing to do. An error ends the turn, and the driver cannot be used any more. */
struct sched_driver_calls {
    /* Called for every plan, also without rows: its admissions, rejections and moves. */
    int (*planned)(void *context, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err);
    /* Run its rows. */
    int (*launch)(void *context, const struct sched_step *step, struct quire_error *err);
    /* Wait for its results. */
    int (*wait)(void *context, const struct sched_step *step, struct quire_error *err);
    /* Writes one result, made by sched_result_of(), for each row that gives tokens and whose sequence is not over, in
     * row order. Returns their number. There is space for the results of all rows and for all their tokens. */
    uint32_t (*take)(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens);
    void (*committed)(void *context, const struct sched_committed *committed);
    /* The name may be reused after this call. */
    void (*retired)(void *context, uint32_t seq);
};

/* A result of the row with its first token: no draft accepted, not finished. */
static inline struct sched_result sched_result_of(const struct sched_row *row, const uint32_t *tokens)
{
    /* Sets all members explicitly; otherwise the compiler clears the whole struct first and waits to reload it as one.
     */
    return (struct sched_result){.seq = row->seq, .n_accepted = 0, .tokens = tokens, .finished = false};
}

/* For a scheduler without plans so far. The scheduler, the table and the context belong to the caller and must outlive
 * the driver. QUIRE_NO_MEMORY. */
int sched_driver_create(struct sched *s, const struct sched_driver_calls *calls, void *context,
                        struct sched_driver **out, struct quire_error *err);
void sched_driver_destroy(struct sched_driver *d); /* NULL is allowed */

/* Plans the next step, launches it if it has rows, and commits the steps beyond the overlap: all steps if nothing was
 * launched, or if most running sequences wait for the host to see their tokens. Otherwise those sequences would skip
 * every other step, or form two halves that alternate, although one step for all takes hardly longer. Then retires
 * sequences. */
int sched_driver_turn(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err);

/* The parts of a turn. */
int sched_driver_plan(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err);
/* Commits the oldest step in flight. Returns QUIRE_INVALID if no step is in flight. */
int sched_driver_commit(struct sched_driver *d, struct quire_error *err);
void sched_driver_retire(struct sched_driver *d);

/* Commits all steps in flight, so that each is charged by the model that planned it, and then calls sched_set_cost(). */
int sched_driver_set_cost(struct sched_driver *d, const struct sched_cost *cost, struct quire_error *err);

uint32_t sched_driver_in_flight(const struct sched_driver *d);

#endif
