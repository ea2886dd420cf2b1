/* The running sequences in the policy's order.
 *
 * Ranks hardly change, so the list is nearly sorted: it costs one comparison per sequence, and a few more for each that
 * moves. Flow ranks change with every plan, and two flows that swap would move all their sequences. The flows are
 * therefore sorted first, and the running sequences are distributed to them by counting.
 */
#include "scheduler/planner.h"
#include "scheduler/sequence.h"

#include <string.h>

#define MOST_BACK 8

/* Insertion sort from the last plan's order: counters grow together, so few flows move. */
static void order_flows(struct sched *s)
{
    uint32_t n = s->flows->queue.n_flows + 1;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t flow = s->flows->order[i], at = i;
        for (; at > 0 && queue_flow_before(&s->flows->queue, flow, s->flows->order[at - 1]); at--)
            s->flows->order[at] = s->flows->order[at - 1];
        s->flows->order[at] = flow;
    }
}

/* The first flow with work in this step. */
static uint32_t first_flow(const struct planner *p)
{
    const struct sched *s = p->s;
    const struct sched_flows *f = s->flows;
    uint32_t top = p->head_may_come ? queue_top(&f->queue) : QUEUE_NONE;
    uint32_t waiting = top == QUEUE_NONE ? QUEUE_NONE : s->seqs[top].key.flow;
    for (uint32_t i = 0; i < f->queue.n_flows; i++)
        if (f->runs[f->order[i]] > 0 || f->order[i] == waiting)
            return f->order[i];
    return QUEUE_NONE;
}

static uint32_t group_of(const struct sched_flow_groups *groups, uint32_t flow)
{
    return groups ? groups->of[flow] : flow;
}

/* The lead over the first flow from which on another one is ahead: half a quantum more than most have. A lead counts to
 * two quanta, so that one flow with a large one does not speak for the others. */
static double most_lead(const struct planner *p, uint32_t first)
{
    const struct sched_flows *f = p->s->flows;
    const struct sched_flow_groups *groups = queue_groups(&f->queue);
    uint32_t n = 0, last = group_of(groups, first);
    double sum = 0;
    for (uint32_t i = 0; i < f->queue.n_flows; i++) {
        uint32_t flow = f->order[i];
        if (f->runs[flow] == 0 && flow != first)
            continue;
        if (n > 0 && group_of(groups, flow) == last) /* groups are contiguous */
            continue;
        double lead = n > 0 ? f->policy->flow_lead(f->state, flow, first) : 0;
        sum += lead < 2 ? lead : 2;
        last = group_of(groups, flow);
        n++;
    }
    return sum / n + 0.5;
}

/* Marks the flows that are ahead of most with work in this step, or by a quantum of the first of their own group. */
static void mark_ahead(struct planner *p)
{
    struct sched_flows *f = p->s->flows;
    const struct sched_flow_groups *groups = queue_groups(&f->queue);
    uint32_t first = first_flow(p), sibling = first;
    double most = first != QUEUE_NONE ? most_lead(p, first) : 0;
    for (uint32_t i = 0; i < f->queue.n_flows && first != QUEUE_NONE; i++) {
        uint32_t flow = f->order[i];
        f->ahead[flow] = false;
        if (f->runs[flow] == 0 && f->queue.n_waiting[flow] == 0)
            continue;
        p->is_shared |= flow != first;
        if (group_of(groups, sibling) != group_of(groups, flow) && f->runs[flow] > 0)
            sibling = flow;
        if (group_of(groups, first) != group_of(groups, flow))
            f->ahead[flow] = f->policy->flow_lead(f->state, flow, first) > most;
        if (groups && group_of(groups, sibling) == group_of(groups, flow))
            f->ahead[flow] |= f->policy->flow_lead(f->state, flow, sibling) > 1;
        p->any_ahead |= f->ahead[flow];
    }
}

/* Stable: the order within a flow is kept. */
static void deal_out(struct sched *s, uint32_t n)
{
    uint32_t at = 0;
    memset(s->flows->at, 0, (s->flows->queue.n_flows + 1) * sizeof *s->flows->at);
    for (uint32_t i = 0; i < n; i++)
        s->flows->at[s->seqs[s->running[i]].key.flow]++;
    for (uint32_t i = 0; i <= s->flows->queue.n_flows; i++) {
        uint32_t flow = s->flows->order[i], size = s->flows->at[flow];
        s->flows->at[flow] = at;
        at += size;
    }
    for (uint32_t i = 0; i < n; i++)
        s->scratch.order[s->flows->at[s->seqs[s->running[i]].key.flow]++] = s->running[i];
    memcpy(s->running, s->scratch.order, n * sizeof *s->running);
}

static void count_wants(struct planner *p, const struct sequence *q)
{
    struct sched *s = p->s;
    uint32_t left = seq_remaining(q);
    if (left == 0)
        return;
    s->flows->runs[q->key.flow]++;
    if (left == 1) {
        p->n_decodes++;
        return;
    }
    p->n_partial++;
}

static uint32_t compact(struct planner *p)
{
    struct sched *s = p->s;
    bool ranks = s->flows->policy->ranks_running;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_listed; i++) {
        uint32_t name = s->running[i];
        struct sequence *q = &s->seqs[name];
        if (i + SEQ_AHEAD < s->n_listed)
            seq_prefetch(s, s->running[i + SEQ_AHEAD]);
        if (q->state != SEQ_RUNNING)
            continue;
        s->running[n++] = name;
        if (ranks) {
            q->key.n_known = q->n_known + q->n_sampling;
            q->key.n_computed = q->n_planned;
            uint64_t rank = s->flows->policy->rank(s->flows->state, &q->key);
            q->key.rank = rank < q->lent_rank ? rank : q->lent_rank;
        }
        if (!q->key.background)
            count_wants(p, q);
    }
    return n;
}

static bool before(const struct sched *s, uint32_t a, uint32_t b)
{
    return queue_before(&s->flows->queue, &s->seqs[a].key, &s->seqs[b].key);
}

/* Inserts into n sorted names. */
static void insert(struct sched *s, uint32_t n, uint32_t name)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (before(s, name, s->running[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&s->running[low + 1], &s->running[low], (n - low) * sizeof *s->running);
    s->running[low] = name;
}

/* Sequences in order stay; the others are removed and inserted again. If a sequence comes after a later one, either it
 * moved forward or those before it moved back: if few moved back, they are removed, otherwise it is. */
static void sort(struct sched *s, uint32_t n)
{
    uint32_t n_kept = 0, n_moved = 0;
    const struct sched_candidate *last = NULL; /* of the kept ones */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t name = s->running[i], n_back = 1;
        const struct sched_candidate *key = &s->seqs[name].key;
        if (!last || !queue_before(&s->flows->queue, key, last)) {
            s->running[n_kept++] = name;
            last = key;
            continue;
        }
        while (n_back < n_kept && n_back <= MOST_BACK && before(s, name, s->running[n_kept - 1 - n_back]))
            n_back++;
        if (n_back > MOST_BACK) {
            s->scratch.order[n_moved++] = name;
            continue;
        }
        while (n_back-- > 0)
            s->scratch.order[n_moved++] = s->running[--n_kept];
        s->running[n_kept++] = name;
        last = key;
    }
    for (uint32_t i = 0; i < n_moved; i++)
        insert(s, n_kept + i, s->scratch.order[i]);
}

/* The background is at the end of the list. What it needs counts only in a step that includes it. */
static void hold_background(struct planner *p)
{
    struct sched *s = p->s;
    p->has_live = p->n_decodes > 0;
    if (s->n_live_waiting > 0 || p->n_partial > 0 || p->has_live)
        pace_note_live(s->pace, p->now_us);
    p->live_first = s->n_live_waiting > 0 || p->n_partial > 0 || (p->has_live && !pace_allows(s->pace));
    for (uint32_t i = s->n_listed; i-- > 0 && s->seqs[s->running[i]].key.background;) {
        if (p->live_first)
            p->n_held++;
        else
            count_wants(p, &s->seqs[s->running[i]]);
    }
}

void planner_order(struct planner *p)
{
    struct sched *s = p->s;
    memset(s->flows->runs, 0, (s->flows->queue.n_flows + 1) * sizeof *s->flows->runs);
    uint32_t n = compact(p);
    if (s->flows->policy->flow_ranks && s->flows->queue.n_flows > 1) {
        order_flows(s);
        deal_out(s, n);
    }
    sort(s, n);
    s->n_listed = n;
    hold_background(p);
    if (s->flows->policy->flow_lead && s->config->cost)
        mark_ahead(p);
}
