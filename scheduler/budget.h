/* How long a step is allowed to be: the time target, corrected by what steps took of late.
 *
 * The cost model was fitted on a quiet machine. With adaptive_budget the ratio of measured to
 * predicted step times is smoothed exponentially (a tenth of each new ratio) inside BUDGET_MIN_RATIO …
 * BUDGET_MAX_RATIO, and the target that the model is asked for is divided by it. A step's end is the
 * first plan that finds it committed, its beginning its own plan or the end of the step before, whichever is
 * later: times as given to sched_plan, so pure, and the same in a replay.
 */
#ifndef QUIRE_SCHEDULER_BUDGET_H
#define QUIRE_SCHEDULER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_MIN_RATIO 0.25
#define BUDGET_MAX_RATIO 4.0

struct budget {
    bool adaptive;
    double target_us;    /* 0 = none */
    double ratio;        /* measured / predicted, smoothed; 1 at first */
    double us_per_token; /* of late, in steps that computed prompts; 0 = not known yet */
    double took_us, took_tokens; /* of those steps, smoothed: its parts */
    struct budget_step {
        uint64_t planned_us;
        double predicted_us; /* 0 = there is no model */
        uint32_t n_tokens;
        bool has_prompts;
    } steps[2];              /* by number: those in flight, and the one committed last */
    uint64_t committed, ended_us; /* the last step that was learned from, or never will be, and when */
};

void budget_init(struct budget *b, uint64_t target_us, bool adaptive);
/* Before a plan: learns from the step that was committed last. */
void budget_begin(struct budget *b, uint64_t now_us, uint64_t committed);
/* After a plan of a step. has_prompts: it has rows of more than a token. predicted_us 0: there is no model. */
void budget_end(struct budget *b, uint64_t now_us, uint64_t step, uint32_t n_tokens, bool has_prompts,
                double predicted_us);
/* What to ask the cost model for; 0 = no target. */
double budget_target_us(const struct budget *b);

#endif
