#include "scheduler/state/waits.h"

#include <string.h>

void waits_begin(struct sched_waits *w, uint32_t name, uint64_t arrival_us, uint32_t n_new_before)
{
    struct seq_waits *q = &w->seqs[name];
    *q = (struct seq_waits){.account = {.arrival_us = arrival_us},
                            .since_us = arrival_us,
                            .n_admissions_before = w->n_admissions,
                            .n_new_before = n_new_before};
    /* The current shortage of the head counts for this sequence only from its arrival. If it arrived before the last
     * plan, the time before that plan is not counted. */
    memcpy(q->short_before, w->short_us, sizeof q->short_before);
    if (w->now_us == 0)
        w->now_us = arrival_us;
    if (arrival_us > w->now_us)
        q->short_before[w->shortage] += arrival_us - w->now_us;
    else
        q->short_before[SCHED_SHORT_OF_NOTHING] -= w->now_us - arrival_us;
}

void waits_pass_time(struct sched_waits *w, uint64_t now_us)
{
    if (now_us > w->now_us) {
        if (w->now_us > 0)
            w->short_us[w->shortage] += now_us - w->now_us;
        w->now_us = now_us;
    }
    w->shortage = SCHED_SHORT_OF_NOTHING;
}
