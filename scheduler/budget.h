/* The time limit of a step: the time target, corrected by recent step times.
 *
 * The cost model was fitted on an idle machine. With adaptive_budget, the ratio of measured to predicted step times is
 * smoothed exponentially (a tenth of each new ratio) within BUDGET_MIN_RATIO … BUDGET_MAX_RATIO, and the target for the
 * model is divided by it. The ratio in effect follows the smoothed one only when they differ by more than
 * BUDGET_DEAD_BAND, so noise changes nothing. A step ends at the first plan that finds it committed. It begins at its own plan or at the
 * end of the previous step, whichever is later. Both are times passed to sched_plan, so the module is pure and behaves
 * the same in a replay.
 */
#ifndef QUIRE_SCHEDULER_BUDGET_H
#define QUIRE_SCHEDULER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_MIN_RATIO 0.25
#define BUDGET_MAX_RATIO 4.0
#define BUDGET_DEAD_BAND 0.1 /* of the lower one */

struct budget {
    bool adaptive;
    double target_us;    /* 0 = none */
    double ratio;        /* measured / predicted, smoothed; initially 1 */
    double used;         /* the ratio in effect */
    double us_per_token; /* recent average in steps that computed prompts; 0: unknown */
    double took_us, took_tokens; /* smoothed values of those steps, from which it follows */
    struct budget_step {
        uint64_t planned_us;
        double predicted_us; /* 0: no cost model */
        uint32_t n_tokens;
        bool has_prompts;
    } steps[2];              /* by number: those in flight, and the last committed one */
    uint64_t committed, ended_us; /* the last step that was learned or skipped, and when */
};

void budget_init(struct budget *b, uint64_t target_us, bool adaptive);
/* Call before a plan: learns from the last committed step. */
void budget_begin(struct budget *b, uint64_t now_us, uint64_t committed);
/* Call after a plan of a step. has_prompts: it has rows of more than one token. predicted_us 0: no cost model. */
void budget_end(struct budget *b, uint64_t now_us, uint64_t step, uint32_t n_tokens, bool has_prompts,
                double predicted_us);
/* The cost model changed: earlier ratios are of another one. */
void budget_new_model(struct budget *b);
/* The target for the cost model; 0: no target. */
double budget_target_us(const struct budget *b);

#endif
