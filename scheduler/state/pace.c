#include "scheduler/state/pace.h"

#define NEW_SHARE 0.1

void pace_begin(struct pace *p, uint64_t now_us, uint64_t committed)
{
    if (committed == p->committed)
        return;
    const struct pace_step *step = &p->steps[committed % 2];
    const uint64_t began_us = step->planned_us > p->ended_us ? step->planned_us : p->ended_us;
    p->committed = committed;
    p->ended_us = now_us;
    if (now_us <= began_us || !step->has_live)
        return;
    const double took = (double)(now_us - began_us);
    if (step->has_background) {
        const double excess_us = PACE_PAUSE * (took - p->live_us);
        p->pause_us += excess_us > took ? excess_us : took;
        p->pause_us = p->pause_us < PACE_MAX_US ? p->pause_us : PACE_MAX_US;
        return;
    }
    p->live_us = p->live_us > 0 ? p->live_us + NEW_SHARE * (took - p->live_us) : took;
    p->pause_us = p->pause_us > took ? p->pause_us - took : 0;
}

bool pace_allows(const struct pace *p)
{
    return p->pause_us <= 0;
}

void pace_end(struct pace *p, uint64_t now_us, uint64_t step, bool has_live, bool has_background)
{
    p->steps[step % 2] = (struct pace_step){
        .planned_us = now_us, .has_live = has_live, .has_background = has_background};
}
