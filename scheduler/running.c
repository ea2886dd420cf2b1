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

/* ---- limits of time ---- */

/* The part of the step target that prompts have although decodes alone exceed it. */
static double prompt_share_us(const struct planner *p)
{
    const struct sched_flows *f = p->s->flows;
    uint32_t percent = f->policy->prefill_share ? f->policy->prefill_share(f->state) : 0;
    return p->time->target_us * (percent ? percent : SCHED_PROMPT_SHARE) / 100;
}

/* Until when a step may have prompts; 0: no target. In a step whose decodes are not all known yet, at least that long. */
static double prompt_until(const struct planner *p)
{
    if (p->time->target_us == 0 || p->time->prompt_until_us > 0)
        return p->time->prompt_until_us;
    double least = sched_cost_us(p->s->config->cost, &p->shape) + prompt_share_us(p);
    return least > p->time->target_us ? least : p->time->target_us;
}

/* The step's time without rows of flows that are ahead: all rows so far, as long as none of those is among them. A step
 * without rows counts as one of one token. */
static double step_without(const struct planner *p)
{
    const struct sched_shape least = {.n_tokens = 1};
    return p->time->has_rest ? p->time->rest_us
                             : sched_cost_us(p->s->config->cost, p->shape.n_tokens > 0 ? &p->shape : &least);
}

void planner_rest(struct planner *p)
{
    p->time->rest_us = step_without(p);
    p->time->has_rest = true;
}

/* Until when a chunk of q may last; 0: no limit. Without a target, a chunk in a step of several flows takes at most as
 * long as the rest of it; that of a flow which is not ahead may also take a quantum. */
static double chunk_until(const struct planner *p, const struct sequence *q)
{
    if (p->time->target_us > 0 || !p->is_shared || !p->time->has_decodes)
        return prompt_until(p);
    double quantum = sched_cost_quantum_us(p->s->config->cost), rest = step_without(p);
    return rest + (rest > quantum || planner_is_ahead(p, q) ? rest : quantum);
}

/* A flow that is ahead has at most as much of a step as the others, or what they leave of the target. */
bool planner_fits_late(const struct planner *p, const struct sequence *q)
{
    struct sched_shape with = p->shape;
    sched_shape_add(&with, q->n_planned, 1, 1);
    return sched_cost_us(p->s->config->cost, &with) <=
           (p->time->target_us > 0 ? prompt_until(p) : 2 * p->time->rest_us);
}

/* The tokens that fit into the step until then. A flow that is ahead does not lengthen a step that gives another one its
 * first token. A step always has a few prompt tokens. Beyond them, a part of a prompt is
 * left for another step rather than read its context for less than as many. */
static uint32_t bound_time(const struct planner *p, const struct sequence *q, uint32_t count, double until_us)
{
    if (p->time->first_token && planner_is_ahead(p, q))
        until_us = 0;
    uint32_t room = sched_cost_fit(p->s->config->cost, &p->shape, q->n_planned, count, until_us);
    uint32_t given = p->slot->plan.n_tokens - p->slot->plan.n_rows;
    bool late = p->time->n_late > 0 || (planner_is_ahead(p, q) && (p->time->target_us == 0 || p->time->first_token));
    uint32_t least = given < SCHED_MIN_CHUNK && !late ? SCHED_MIN_CHUNK - given : 0;
    if (room < least)
        room = least;
    if (room < count && room < SCHED_MIN_CHUNK && (given > 0 || late))
        room = 0;
    return count < room ? count : room;
}

/* ---- length of a row ---- */

/* Limits of rows of more than one token. */
static uint32_t bound_chunk(const struct planner *p, const struct sequence *q, uint32_t count)
{
    const struct sched_config *c = p->s->config;
    if (c->long_prefill_token_threshold && count > c->long_prefill_token_threshold)
        count = c->long_prefill_token_threshold;
    double until_us = chunk_until(p, q);
    return until_us > 0 ? bound_time(p, q, count, until_us) : count;
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
    uint32_t fresh = end > q->reach.n ? end - (first > q->reach.n ? first : q->reach.n) : 0;
    uint32_t of_prompt = end < q->key.n_prompt ? end : q->key.n_prompt;
    uint32_t prompt_from = first > q->reach.n ? first : q->reach.n;
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
    if (s->flows->policy->served)
        s->flows->policy->served(s->flows->state, &q->key, &service);
    if (end > q->reach.n) {
        q->reach.n = end;
        if (q->reach.seat_step == 0)
            q->reach.seat_step = s->step + 1;
    }
}

/* The own part of the row, and for a prompt at once the least that its tokens will be charged: it orders the next
 * admission. charge_flows() of plan.c charges the rest. */
FOR_DECODES void charge_row(struct planner *p, const struct sequence *q, const struct sched_row *row)
{
    const struct sched_flows *f = p->s->flows;
    struct flow_time *t = &f->times[q->key.flow];
    double us = sched_cost_own_us(p->s->config->cost, row->first, row->count,
                                  row->first + row->count - row->first_logit);
    if (row->first >= q->key.n_prompt) {
        t->n_other += row->count;
        t->other_us += us;
        return;
    }
    t->n_prompt += row->count;
    if (!q->key.background)
        f->policy->spent(f->state, q->key.flow, true, us + p->time->least_token_us * row->count);
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
    row->outputs = (struct sched_outputs){.tokens = samples,
                                          .scores = scores,
                                          .vector = first < q->key.n_prompt && end >= q->key.n_prompt &&
                                                    q->job->vector};
    row->adapter = s->adapters[row->seq];
    plan->n_tokens += count;
    plan->n_logits += end - first_logit;
    p->budget -= count;
    if (q->key.background) {
        p->background -= count < p->background ? count : p->background;
        p->has_background = true;
    }
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
    if (p->time->charges)
        charge_row(p, q, row);
    p->time->first_token |= samples && first < q->key.n_prompt && !planner_is_ahead(p, q);
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
    if (p->s->admission->shared)
        n += p->s->admission->shared[sched_name(p->s, q)].n[group];
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

void planner_preempt(struct planner *p, uint32_t index)
{
    struct sched *s = p->s;
    uint32_t name = s->running[index], n_after = s->n_listed - 1 - index;
    memmove(&s->running[index], &s->running[index + 1], n_after * sizeof *s->running);
    s->running[s->n_listed - 1] = name;
    preempt_last(p);
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
    return true;
}

/* A decode, or its block if its row waits for those of flows that are behind. */
FOR_DECODES bool serve_decode(struct planner *p, struct sequence *q, uint32_t logits)
{
    if (bound_row(p, q, 1, logits) == 0)
        return true;
    if (q->n_planned >= q->n_reserved && !make_space(p, q, q->n_planned + 1))
        return false;
    if (planner_is_ahead(p, q))
        p->s->scratch.prefills[p->n_prefills++] = (struct prefill){.name = sched_name(p->s, q), .want = 1};
    else
        add_row(p, q, 1);
    return true;
}

void planner_serve_running(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t prompt_left = planner_left_for_prompts(p);
    for (uint32_t i = 0; i < s->n_listed - p->n_held; i++) {
        struct sequence *q = &s->seqs[s->running[i]];
        if (i + SEQ_AHEAD < s->n_listed)
            seq_prefetch(s, s->running[i + SEQ_AHEAD]);
        if (i + SEQ_AHEAD / 2 < s->n_listed)
            seq_prefetch_parts(s, s->running[i + SEQ_AHEAD / 2]);
        uint32_t left = seq_remaining(q);
        /* One logit row is reserved for each sequence after this one. */
        uint32_t logits = p->logits - (s->n_listed - p->n_held - 1 - i);
        if (q->n_computed < q->key.n_prompt)
            s->scratch.computing[p->n_computing++] = sched_name(s, q);
        if (left == 1) {
            if (!serve_decode(p, q, logits))
                continue;
        } else if (left > 1) {
            if (!prepare_chunk(p, q, logits, &prompt_left))
                continue;
        }
        if (promised(s, q) > q->n_reserved)
            planner_add_owed(p, q);
    }
    p->time->prompt_until_us = prompt_until(p);
    p->time->has_decodes = true;
}
