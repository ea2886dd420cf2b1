/* Seats and blocks that are taken back. A full max_num_seqs, or a full KV cache, would let one tenant's long answers decide
 * how long all others wait.
 *
 * They are taken before the step has rows, so the sequence that loses them has none in this step. It is preempted like one
 * that lacks blocks: its blocks stay cached or move to the host tier, and it waits. It keeps its seat until it has computed
 * again what it lost, and SCHED_SEAT_STEPS steps longer, so that each admission brings it forward.
 *
 * Blocks are only taken if those of the sequences that may lose them are enough for the head of the queue. Where policies
 * compare service, the lead must also pay PAYS times for computing the lost blocks again, so that at most a fifth of the
 * time is spent on that.
 */
#include "memory/kv_table.h"
#include "scheduler/planner.h"
#include "scheduler/sequence.h"

/* With 1, 40 tenants with prompts of 50,000 tokens and blocks for nine of them reach 0.68 of the throughput of fcfs, now
 * 0.98. */
#define PAYS 4

static bool may_take(const struct planner *p)
{
    const struct sched *s = p->s;
    const struct sched_config *c = s->config;
    return s->flows->policy->takes_seat && p->n_held == 0 && c->batching == SCHED_CONTINUOUS &&
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

static void take(struct planner *p, uint32_t index)
{
    struct sequence *q = &p->s->seqs[p->s->running[index]];
    uncount(p, q);
    q->key.lost_seat_us = p->now_us > 0 ? p->now_us : 1;
    p->seat_of = p->s->running[index];
    planner_preempt(p, index);
}

/* Whether q may lose its seat to the head of the queue. */
static bool may_lose(const struct planner *p, const struct sequence *q, const struct sequence *head,
                     const struct sched_load *load)
{
    const struct sched_flows *f = p->s->flows;
    return q->reach.seat_step > 0 && p->s->step + 1 >= q->reach.seat_step + SCHED_SEAT_STEPS &&
           f->policy->takes_seat(f->state, &head->key, &q->key, load);
}

/* Whether the lead of q's flow pays for computing its blocks again. */
static bool pays(const struct planner *p, const struct sequence *q, const struct sequence *head)
{
    const struct sched_flows *f = p->s->flows;
    const struct sched_config *c = p->s->config;
    if (!f->policy->flow_lead)
        return true;
    if (!c->cost)
        return false;
    double us = sched_cost_prefill_us(c->cost, 0, q->n_computed, c->max_num_batched_tokens);
    return f->policy->flow_lead(f->state, q->key.flow, head->key.flow) > 1 + PAYS * us / sched_cost_quantum_us(c->cost);
}

/* missing: blocks that the head lacked in the last plan. Blocks that others hold, too, are counted as if they became free;
 * if they do not, the next plan takes another one's. */
static void take_blocks(struct planner *p, const struct sequence *head, const struct sched_load *load, int64_t *missing)
{
    const struct sched *s = p->s;
    uint32_t last = QUEUE_NONE;
    bool enough = false;
    for (uint32_t i = s->n_listed; i-- > 0 && !enough;) {
        const struct sequence *q = &s->seqs[s->running[i]];
        if (!may_lose(p, q, head, load) || !pays(p, q, head))
            continue;
        last = last == QUEUE_NONE ? i : last;
        enough = true;
        for (uint32_t g = 0; g < s->config->kv.n_groups; g++) {
            missing[g] -= kv_table_held(q->table, g);
            enough &= missing[g] <= 0;
        }
    }
    p->takes_blocks = enough;
    if (enough)
        take(p, last);
}

void planner_take_seat(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t top = queue_top(&s->flows->queue);
    int64_t missing[KV_MAX_GROUPS];
    if (!may_take(p) || top == QUEUE_NONE || s->seqs[top].key.background)
        return;
    const struct sequence *head = &s->seqs[top];
    const struct sched_load load = sched_load_of(s, head, p->now_us);
    if (s->n_listed < s->config->max_num_seqs) {
        if (s->n_touched == 0 && planner_lacks_blocks(p, head, missing))
            take_blocks(p, head, &load, missing);
        return;
    }
    for (uint32_t i = s->n_listed; i-- > 0;) {
        if (!may_lose(p, &s->seqs[s->running[i]], head, &load))
            continue;
        take(p, i);
        return;
    }
}
