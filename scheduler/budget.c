#include "scheduler/budget.h"

#define NEW_SHARE 0.1

void budget_init(struct budget *b, uint64_t target_us, bool adaptive)
{
    *b = (struct budget){.adaptive = adaptive, .target_us = (double)target_us, .ratio = 1, .used = 1};
}

static double smooth(double past, double now)
{
    return past + NEW_SHARE * (now - past);
}

static double bounded(double ratio)
{
    if (ratio < BUDGET_MIN_RATIO)
        return BUDGET_MIN_RATIO;
    return ratio > BUDGET_MAX_RATIO ? BUDGET_MAX_RATIO : ratio;
}

void budget_begin(struct budget *b, uint64_t now_us, uint64_t committed)
{
    if (committed == b->committed)
        return;
    const struct budget_step *step = &b->steps[committed % 2];
    uint64_t began_us = step->planned_us > b->ended_us ? step->planned_us : b->ended_us;
    b->committed = committed;
    b->ended_us = now_us;
    if (now_us <= began_us)
        return;
    double took = (double)(now_us - began_us);
    /* A step of decodes gives no information about the speed of prompts: it takes nearly as long as one with a few hundred
     * more prompt tokens. */
    if (step->has_prompts) {
        b->took_us = smooth(b->took_us, took);
        b->took_tokens = smooth(b->took_tokens, step->n_tokens);
        b->us_per_token = b->took_us / b->took_tokens;
    }
    /* One outlier (a page fault, a busy neighbour) changes the ratio by at most a tenth of a bounded step. */
    if (b->adaptive && step->predicted_us > 0)
        b->ratio = bounded(smooth(b->ratio, bounded(took / step->predicted_us)));
    if (b->ratio > b->used * (1 + BUDGET_DEAD_BAND) || b->ratio * (1 + BUDGET_DEAD_BAND) < b->used)
        b->used = b->ratio;
}

void budget_end(struct budget *b, uint64_t now_us, uint64_t step, uint32_t n_tokens, bool has_prompts,
                double predicted_us)
{
    b->steps[step % 2] = (struct budget_step){
        .planned_us = now_us, .predicted_us = predicted_us, .n_tokens = n_tokens, .has_prompts = has_prompts};
}

void budget_new_model(struct budget *b)
{
    b->ratio = b->used = 1;
    b->steps[0].predicted_us = b->steps[1].predicted_us = 0;
}

double budget_target_us(const struct budget *b)
{
    return b->target_us / b->used;
}
