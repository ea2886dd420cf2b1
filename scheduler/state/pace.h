/* How often the background may share a step with live decodes: so that it lengthens live work by a tenth at most.
 *
 * A shared step takes longer than one of live rows alone. Once it has ended, live rows have steps of their own for ten
 * times that excess, and at least for as long as it took: so their own time stays known. Most of a stream's gaps are then those without a background, and all tokens together come at most a
 * tenth later. Times are those passed to sched_plan, so the module is pure and behaves the same in a replay.
 */
#ifndef QUIRE_SCHEDULER_PACE_H
#define QUIRE_SCHEDULER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_PAUSE 10      /* times the excess of a shared step */
#define PACE_MAX_US 2000000 /* longest pause: a machine that stood still says nothing about the background */

struct pace { /* zero it to begin */
    double live_us; /* recent average of steps of live decodes alone; 0: unknown */
    double pause_us; /* left */
    struct pace_step {
        uint64_t planned_us;
        bool has_live, has_background;
    } steps[2]; /* by number, as in budget.h */
    uint64_t committed, ended_us;
};

/* Call before a plan: learns from the last committed step. */
void pace_begin(struct pace *p, uint64_t now_us, uint64_t committed);
/* Whether the background may be in a step with live decodes. */
bool pace_allows(const struct pace *p);
/* Call after a plan of a step. */
void pace_end(struct pace *p, uint64_t now_us, uint64_t step, bool has_live, bool has_background);

#endif
