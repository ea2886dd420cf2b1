#include "scheduler/state/pace.h"

#define NEW_SHARE 0.1
#define FIRST_TOKENS 16 /* before any step was measured */
#define GROWTH 1.1 /* of the tokens of a step, after one within the limit */

void pace_init(struct pace *p, uint64_t step_target_us)
{
    *p = (struct pace){.step_us = step_target_us > 0 ? PACE_TARGET_SHARE * (double)step_target_us : PACE_STEP_US};
}

static double limit_us(const struct pace *p)
{
    const double least = PACE_LEAST * p->live_us;
    return p->step_us > least ? p->step_us : least;
}

static double known_tokens(const struct pace *p)
{
    return p->n_tokens > 0 ? p->n_tokens : FIRST_TOKENS;
}

/* The background had a step for itself. A long one shortens the next at once; then they grow by a tenth. */
static void learn_tokens(struct pace *p, uint32_t n_tokens, double took_us)
{
    const double limit = limit_us(p), known = known_tokens(p);
    p->n_tokens = known;
    if (took_us > limit) {
        const double fits = n_tokens * limit / took_us;
        p->n_tokens = fits < 1 ? 1 : fits < known ? fits : known;
    } else if (n_tokens + 1 > known) {
        p->n_tokens = known * GROWTH + 0.1;
    }
}

void pace_begin(struct pace *p, uint64_t now_us, uint64_t committed)
{
    if (committed == p->committed)
        return;
    const struct pace_step *step = &p->steps[committed % 2];
    const uint64_t began_us = step->planned_us > p->ended_us ? step->planned_us : p->ended_us;
    p->committed = committed;
    p->ended_us = now_us;
    if (now_us <= began_us)
        return;
    const double took = (double)(now_us - began_us);
    if (!step->has_live) {
        if (step->has_background)
            learn_tokens(p, step->n_tokens, took);
        return;
    }
    if (step->has_background) {
        const double excess_us = PACE_PAUSE * (took - p->live_us);
        p->pause_us += excess_us > took ? excess_us : took;
        p->pause_us = p->pause_us < PACE_MAX_US ? p->pause_us : PACE_MAX_US;
        return;
    }
    p->live_us = p->live_us > 0 ? p->live_us + NEW_SHARE * (took - p->live_us) : took;
    p->pause_us = p->pause_us > took ? p->pause_us - took : 0;
}

void pace_note_live(struct pace *p, uint64_t now_us)
{
    p->live_until_us = now_us > 0 ? now_us : 1;
}

bool pace_allows(const struct pace *p)
{
    return p->pause_us <= 0;
}

uint32_t pace_tokens(const struct pace *p, uint64_t now_us, uint32_t most)
{
    if (p->live_until_us == 0 || now_us > p->live_until_us + PACE_NEAR_US)
        return most;
    const double fits = known_tokens(p);
    return fits < most ? (uint32_t)fits : most;
}

void pace_end(struct pace *p, uint64_t step, struct pace_step planned)
{
    p->steps[step % 2] = planned;
}
