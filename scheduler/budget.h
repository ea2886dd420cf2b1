/* How long a step is allowed to be: the time target, corrected by what steps took of late.
 *
 * The cost model was fitted on a quiet machine. With adaptive_budget the ratio of measured to
 * predicted step times is smoothed exponentially (a tenth of each new ratio) inside BUDGET_MIN_RATIO …
 * BUDGET_MAX_RATIO, and the target that the model is asked for is divided by it. The measured time of
 * a step is the time between its plan and the next, as given to sched_plan: pure, and the same in a
 * replay.
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
    bool has_prompts;    /* the last step */
    double predicted_us; /* of the last step; 0 = there was none or there is no model */
    uint32_t n_tokens;   /* of the last step; 0 = it was empty */
    uint64_t planned_us; /* when */
};

void budget_init(struct budget *b, uint64_t target_us, bool adaptive);
/* Before a plan: learns from the step that was planned last. */
void budget_begin(struct budget *b, uint64_t now_us);
/* After a plan. has_prompts: it has rows of more than a token. predicted_us 0: there is no model. */
void budget_end(struct budget *b, uint64_t now_us, uint32_t n_tokens, bool has_prompts,
                double predicted_us);
/* What to ask the cost model for; 0 = no target. */
double budget_target_us(const struct budget *b);

#endif
