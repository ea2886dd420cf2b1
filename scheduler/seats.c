/* Seats that are taken back. A full max_num_seqs would let one tenant's long answers decide how long all others wait.
 *
 * A seat is taken before the step has rows, so the sequence that loses it has none in this step. It is preempted like one
 * that lacks blocks: its blocks stay cached or move to the host tier, and it waits at its old place in the order. It keeps
 * its seat until it has computed again what it lost, and SCHED_SEAT_STEPS steps longer, so that each admission brings it
 * forward.
 */
#include "scheduler/planner.h"
#include "scheduler/sequence.h"

static bool all_taken(const struct planner *p)
{
    const struct sched *s = p->s;
    const struct sched_config *c = s->config;
    return s->n_listed == c->max_num_seqs && p->n_held == 0 && c->batching == SCHED_CONTINUOUS &&
           c->preemption != SCHED_PREEMPT_NEVER;
}

/* It has no row in this step. */
static void uncount(struct planner *p, const struct sequence *q)
{
    uint32_t left = seq_remaining(q);
    if (left == 0)
        return;
    p->s->flows->runs[q->key.flow]--;
    if (left == 1)
        p->n_decodes--;
    else
        p->n_partial--;
}

void planner_take_seat(struct planner *p)
{
    struct sched *s = p->s;
    const struct sched_flows *f = s->flows;
    uint32_t top = queue_top(&f->queue);
    if (!f->policy->takes_seat || top == QUEUE_NONE || s->seqs[top].key.background || !all_taken(p))
        return;
    for (uint32_t i = s->n_listed; i-- > 0;) {
        struct sequence *q = &s->seqs[s->running[i]];
        if (q->reach.seat_step == 0 || s->step + 1 < q->reach.seat_step + SCHED_SEAT_STEPS ||
            !f->policy->takes_seat(f->state, &s->seqs[top].key, &q->key))
            continue;
        uncount(p, q);
        p->seat_of = s->running[i];
        planner_preempt(p, i);
        return;
    }
}
