#include "scheduler/budget.h"

#define NEW_SHARE 0.1

void budget_init(struct budget *b, uint64_t target_us, bool adaptive)
{
    *b = (struct budget){.adaptive = adaptive, .target_us = (double)target_us, .ratio = 1};
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

void budget_begin(struct budget *b, uint64_t now_us)
{
    if (b->n_tokens == 0 || now_us <= b->planned_us)
        return;
    double took = (double)(now_us - b->planned_us);
    /* A step of decodes says nothing of how fast prompts are: it takes nearly as long as one that has
     * a few hundred prompt tokens besides. */
    if (b->has_prompts) {
        b->took_us = smooth(b->took_us, took);
        b->took_tokens = smooth(b->took_tokens, b->n_tokens);
        b->us_per_token = b->took_us / b->took_tokens;
    }
    /* One outlier (a page fault, a busy neighbour) moves the ratio by a tenth of a bounded step. */
    if (b->adaptive && b->predicted_us > 0)
        b->ratio = bounded(smooth(b->ratio, bounded(took / b->predicted_us)));
}

void budget_end(struct budget *b, uint64_t now_us, uint32_t n_tokens, bool has_prompts,
                double predicted_us)
{
    b->has_prompts = has_prompts;
    b->n_tokens = n_tokens;
    b->planned_us = now_us;
    b->predicted_us = predicted_us;
}

double budget_target_us(const struct budget *b)
{
    return b->target_us / b->ratio;
}
