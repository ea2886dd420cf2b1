/* What the background may take of a step, so that live work hardly notices it.
 *
 * A step that live decodes share takes longer than one of live rows alone. Once it has ended, live rows have steps of their
 * own for ten times that excess, and at least for as long as it took: so their own time stays known. Most of a stream's
 * gaps are then those without a background, and all tokens together come at most a tenth later.
 *
 * A live request that arrives during a step waits for its end. While live work is near, in the last PACE_NEAR_US, the
 * background therefore has few tokens: as many as keep a step within a limit. It is a quarter of the step target, or
 * PACE_STEP_US without one; but a step in which hardly more than the weights are read cannot be shorter, so the limit is at
 * least PACE_LEAST times a step of live decodes. The number of tokens follows the measured times of the background's
 * steps. Later it has its whole part of each step: a batch loses no speed at night.
 *
 * Times are those passed to sched_plan, so the module is pure and behaves the same in a replay.
 */
#ifndef QUIRE_SCHEDULER_PACE_H
#define QUIRE_SCHEDULER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_PAUSE 10      /* times the excess of a shared step */
#define PACE_MAX_US 2000000 /* longest pause: a machine that stood still says nothing about the background */
#define PACE_NEAR_US 30000000 /* after the last live work */
#define PACE_STEP_US 4000
#define PACE_LEAST 1.25
#define PACE_TARGET_SHARE 0.25 /* of the step target */

struct pace_step {
    uint64_t planned_us;
    uint32_t n_tokens;
    bool has_live; /* and, except for the background, only decodes */
    bool has_background;
};

struct pace {
    double live_us; /* recent average of steps of live decodes alone; 0: unknown */
    double pause_us; /* left */
    double step_us; /* the limit of a step of the background, before PACE_LEAST */
    double n_tokens; /* as many kept the last steps within the limit; 0: unknown */
    uint64_t live_until_us; /* when there was live work last; 0: never */
    struct pace_step steps[2]; /* by number, as in budget.h */
    uint64_t committed, ended_us;
};

/* step_target_us 0: no target. */
void pace_init(struct pace *p, uint64_t step_target_us);
/* Call before a plan: learns from the last committed step. */
void pace_begin(struct pace *p, uint64_t now_us, uint64_t committed);
/* A live request waits or runs. */
void pace_note_live(struct pace *p, uint64_t now_us);
/* Whether the background may be in a step with live decodes. */
bool pace_allows(const struct pace *p);
/* How many of `most` tokens the background may have in a step; at least 1. */
uint32_t pace_tokens(const struct pace *p, uint64_t now_us, uint32_t most);
/* Call after a plan of a step. */
void pace_end(struct pace *p, uint64_t step, struct pace_step planned);

#endif
