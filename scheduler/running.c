/* Rows: their lengths, the rows of running sequences, and the blocks promised to running sequences.
 *
 * Blocks run out only here. The last running sequence is then preempted, so a sequence is never preempted for one that
 * the policy ranks after it. If the sequence that needs blocks is itself the last, it leaves. If blocks are already
 * about to be released (a launched step still touches them), the sequence waits for the next plan, and no further
 * sequence is preempted. A plan that was short of blocks admits nothing.
 *
 * The background is held, without a row, while a live request waits or computes its prompt, because its tokens would
 * lengthen that step. It keeps its blocks and its slots until a live request finds none (planner_give_way). Its part of
 * any step is small, because a request that arrives during the step waits for the step's end.
 */
#include "memory/kv_table.h"
#include "scheduler/planner.h"
#include "scheduler/sequence.h"

#include <string.h>

/* ---- length of a row ---- */

/* Prompt tokens that the other live flows need in this step, including waiting sequences if there is a slot for them.
 */
static uint64_t wanted_by_others(const struct planner *p, uint32_t flow)
{
    const struct sched *s = p->s;
    const struct sched_config *c = s->config;
    uint32_t background = s->flows->queue.n_flows;
    bool waiting = p->head_may_come && s->n_listed < c->max_num_seqs &&
                   (c->max_partial_prefills == 0 || p->n_partial < c->max_partial_prefills);
    uint64_t n = p->wanted - s->flows->wants[flow];
    if (flow != background)
        n -= s->flows->wants[background];
    if (waiting)
        n += s->flows->queue.n_tokens - s->flows->queue.heaps[flow].n_tokens;
    if (waiting && flow != background)
        n -= s->flows->queue.heaps[background].n_tokens;
    return n;
}

/* Prompt tokens that one flow may still have in this step: a share of the total, or what the others leave if they need
 * less. Only prompts that continue after this step are limited. An admitted sequence belongs to the flow with the first
 * turn, and a nearly finished prompt should finish. */
static uint32_t share_left(const struct planner *p, const struct sequence *q)
{
    const struct sched *s = p->s;
    uint32_t flow = q->key.flow, given = s->flows->given[flow];
    bool bounded = p->share > 0 && q->state == SEQ_RUNNING;
    uint64_t others = bounded ? wanted_by_others(p, flow) : 0;
    if (others == 0)
        return UINT32_MAX;
    uint64_t part = (uint64_t)p->prompt_budget * p->share / 100;
    uint64_t left_over = p->prompt_budget > others ? p->prompt_budget - others : 0;
    uint64_t most = part > left_over ? part : left_over;
    if (most == 0)
        most = 1;
    return most > given ? (uint32_t)(most - given) : 0;
}

/* Time limit of a row that has only a share. Tokens far into a long prompt cost more than others, so the time is
 * shared, too, and the first such row of a flow gets all of its part. */
static double shared_target(const struct planner *p, uint32_t flow)
{
    double spent = sched_cost_us(p->s->config->cost, &p->shape);
    double left = p->target_us > spent ? p->target_us - spent : 0;
    return p->s->flows->given[flow] > 0 ? spent : spent + left * p->share / 100;
}

/* The tokens that fit into the step until then, but always a few. */
static uint32_t bound_time(const struct planner *p, const struct sequence *q, uint32_t count, double until_us)
{
    uint32_t room = sched_cost_fit(p->s->config->cost, &p->shape, q->n_planned, count, until_us);
    uint32_t given = p->slot->plan.n_tokens - p->slot->plan.n_rows;
    uint32_t least = given < SCHED_MIN_CHUNK ? SCHED_MIN_CHUNK - given : 0;
    if (room < least)
        room = least;
    return count < room ? count : room;
}

/* Limits of rows of more than one token. */
static uint32_t bound_chunk(const struct planner *p, const struct sequence *q, uint32_t count)
{
    const struct sched_config *c = p->s->config;
    if (c->long_prefill_token_threshold && count > c->long_prefill_token_threshold)
        count = c->long_prefill_token_threshold;
    if (p->target_us > 0)
        count = bound_time(p, q, count, p->target_us);
    uint32_t share = share_left(p, q);
    if (share == UINT32_MAX || count == seq_remaining(q))
        return count;
    if (p->target_us > 0)
        count = bound_time(p, q, count, shared_target(p, q->key.flow));
    return count < share ? count : share;
}

/* A thousand decodes are one row each in every plan. Their path is inlined, so that the compiler removes everything for
 * longer rows. */
#define FOR_DECODES static inline __attribute__((always_inline))

/* How many of `count` positions a row of q can have. */
FOR_DECODES uint32_t bound_row(const struct planner *p, const struct sequence *q, uint32_t count, uint32_t logits)
{
    if (count > p->budget)
        count = p->budget;
    if (p->s->config->whole_prompts)
        return count < seq_remaining(q) ? 0 : count;
    if (q->key.background && count > p->background)
        count = p->background;
    if (count > 1)
        count = bound_chunk(p, q, count);
    if (q->n_prompt_logits < q->key.n_prompt) {
        uint32_t given = q->n_prompt_logits > q->n_planned ? q->n_prompt_logits - q->n_planned : 0;
        if (count > given && count - given > logits)
            count = given + logits;
    } else if (count > 0 && logits == 0 && seq_samples(q, q->n_planned + count)) {
        count--;
    }
    return count;
}

uint32_t planner_count(const struct planner *p, const struct sequence *q, uint32_t logits)
{
    return bound_row(p, q, seq_remaining(q), logits);
}

/* ---- rows ---- */

/* Reports the row's service to the policy and the counters. */
FOR_DECODES void account_row(struct planner *p, struct sequence *q, uint32_t count, bool samples)
{
    struct sched *s = p->s;
    struct sched_tenant_stats *tenant = &s->tenants[q->key.tenant];
    uint32_t first = q->n_planned, end = first + count;
    uint32_t fresh = end > q->n_reached ? end - (first > q->n_reached ? first : q->n_reached) : 0;
    uint32_t of_prompt = end < q->key.n_prompt ? end : q->key.n_prompt;
    uint32_t prompt_from = first > q->n_reached ? first : q->n_reached;
    struct sched_service service = {.n_prompt = of_prompt > prompt_from ? of_prompt - prompt_from : 0,
                                    .n_recomputed = count - fresh,
                                    .n_generated = samples};
    if (count > 1 || first < q->key.n_prompt)
        seq_waits(s, q)->account.n_chunks++;
    if (service.n_recomputed > 0) {
        seq_waits(s, q)->account.n_recomputed += service.n_recomputed;
        s->stats.n_recomputed += service.n_recomputed;
    }
    tenant->n_prompt_tokens += service.n_prompt;
    if (count > 1) {
        s->flows->given[q->key.flow] += count;
        p->wanted -= p->wanted < count ? p->wanted : count;
        uint64_t *wants = &s->flows->wants[q->key.flow];
        *wants -= *wants < count ? *wants : count;
    }
    if (s->flows->policy->served)
        s->flows->policy->served(s->flows->state, &q->key, &service);
    if (end > q->n_reached)
        q->n_reached = end;
}

FOR_DECODES void add_row(struct planner *p, struct sequence *q, uint32_t count)
{
    struct sched *s = p->s;
    struct sched_plan *plan = &p->slot->plan;
    uint32_t first = q->n_planned, end = first + count;
    bool samples = seq_samples(q, end);
    uint32_t first_logit = samples ? end - 1 : end;
    bool scores = false;
    if (q->n_prompt_logits < q->key.n_prompt) {
        first_logit = first > q->n_prompt_logits ? first : q->n_prompt_logits;
        if (first_logit > end)
            first_logit = end;
        if (q->n_prompt_logits < end)
            q->n_prompt_logits = end;
        scores = first_logit + samples < end;
    }
    struct sched_row *row = &p->slot->rows[plan->n_rows++];
    row->seq = sched_name(s, q);
    row->first = first;
    row->count = count;
    row->n_draft = 0;
    row->first_logit = first_logit;
    row->outputs = (struct sched_outputs){
        .tokens = samples, .scores = scores, .vector = q->vector && first < q->key.n_prompt && end >= q->key.n_prompt};
    row->adapter = q->adapter;
    plan->n_tokens += count;
    plan->n_logits += end - first_logit;
    p->budget -= count;
    if (q->key.background)
        p->background -= count < p->background ? count : p->background;
    p->logits -= end - first_logit;
    if (s->config->cost)
        sched_shape_add(&p->shape, first, count, end - first_logit);
    account_row(p, q, count, samples);
    for (uint32_t i = q->n_known; i < end; i++)
        q->tokens[i] = SCHED_PENDING;
    q->n_planned = end;
    q->n_sampling += samples;
    q->last_step = s->step + 1;
    q->last_first = first;
    p->prompt_planned |= q->leads && end >= q->key.n_prompt;
}

void planner_add_row(struct planner *p, struct sequence *q, uint32_t count)
{
    add_row(p, q, count);
}

/* ---- blocks ---- */

/* Positions for which the sequence is promised blocks: its known positions or, with reservation, all it may ever have.
 */
static uint32_t promised(const struct sched *s, const struct sequence *q)
{
    if (s->config->preemption == SCHED_PREEMPT_NEVER)
        return q->n_positions;
    return q->n_planned + seq_remaining(q);
}

uint32_t planner_owed(const struct planner *p, const struct sequence *q, uint32_t group)
{
    const struct kv_config *kv = &p->s->config->kv;
    uint32_t n = kv_blocks_needed(kv, group, promised(p->s, q), sched_reach(p->s));
    uint32_t held = kv_table_held(q->table, group);
    n += q->n_shared[group];
    return n > held ? n - held : 0;
}

void planner_add_owed(struct planner *p, const struct sequence *q)
{
    if (promised(p->s, q) <= q->n_reserved)
        return;
    for (uint32_t g = 0; g < p->s->config->kv.n_groups; g++)
        p->owed[g] += planner_owed(p, q, g);
}

/* Preempts the last running sequence. Its blocks are released at once or at the commit of its launched step. */
static struct sequence *preempt_last(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t name = s->running[--s->n_listed];
    struct sequence *q = &s->seqs[name];
    p->slot->preempted[p->slot->plan.n_preempted++] = name;
    s->stats.n_preemptions++;
    p->n_held -= p->n_held > 0;
    sched_stops_running(s, q);
    if (q->last_step > s->committed) {
        q->state = SEQ_LEAVING;
        s->n_touched++;
    } else {
        sched_requeue(s, q);
    }
    return q;
}

/* Sequences admitted in this plan are after the held ones. */
bool planner_give_way(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t last = s->n_listed - 1, at = last;
    if (p->n_held == 0)
        return false;
    while (!s->seqs[s->running[at]].key.background)
        at--;
    uint32_t name = s->running[at];
    s->running[at] = s->running[last];
    s->running[last] = name;
    preempt_last(p);
    return true;
}

static bool make_space(struct planner *p, struct sequence *q, uint32_t n_tokens)
{
    struct sched *s = p->s;
    uint32_t bt = s->config->kv.block_tokens;
    if (n_tokens <= q->n_reserved)
        return true;
    while (kv_table_reserve(q->table, q->n_computed, n_tokens)) {
        if (!q->key.background && pins_drop_kept(s))
            continue;
        if (s->n_listed == 1 && s->n_touched == 0 && pins_drop_one(s))
            continue;
        p->short_of_blocks = true;
        if (s->n_touched > 0 || preempt_last(p) == q)
            return false;
    }
    q->n_reserved = (n_tokens + bt - 1) / bt * bt;
    return true;
}

/* ---- the running ---- */

uint32_t planner_left_for_prompts(const struct planner *p)
{
    uint32_t most = p->s->config->max_num_batched_tokens;
    return most > p->n_decodes ? most - p->n_decodes : 0;
}

/* A chunk: takes its blocks now; its row follows in its turn. */
static bool prepare_chunk(struct planner *p, struct sequence *q, uint32_t logits, uint32_t *prompt_left)
{
    uint32_t want = planner_count(p, q, logits);
    if (want > *prompt_left)
        want = *prompt_left;
    if (want == 0)
        return true;
    if (!make_space(p, q, q->n_planned + want))
        return false;
    p->s->scratch.prefills[p->n_prefills++] = (struct prefill){.name = sched_name(p->s, q), .want = want};
    *prompt_left -= want;
    p->s->flows->given[q->key.flow] += want;
    return true;
}

void planner_serve_running(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t prompt_left = planner_left_for_prompts(p);
    for (uint32_t i = 0; i < s->n_listed - p->n_held; i++) {
        struct sequence *q = &s->seqs[s->running[i]];
        uint32_t left = seq_remaining(q);
        /* One logit row is reserved for each sequence after this one. */
        uint32_t logits = p->logits - (s->n_listed - p->n_held - 1 - i);
        if (q->n_computed < q->key.n_prompt)
            s->scratch.computing[p->n_computing++] = sched_name(s, q);
        if (left == 1) {
            if (bound_row(p, q, 1, logits) > 0) {
                if (q->n_planned >= q->n_reserved && !make_space(p, q, q->n_planned + 1))
                    continue;
                add_row(p, q, 1);
            }
        } else if (left > 1) {
            if (!prepare_chunk(p, q, logits, &prompt_left))
                continue;
        }
        if (promised(s, q) > q->n_reserved)
            planner_add_owed(p, q);
    }
    /* Promised so far; assigned in their turn. */
    memset(s->flows->given, 0, (s->flows->queue.n_flows + 1) * sizeof *s->flows->given);
}
