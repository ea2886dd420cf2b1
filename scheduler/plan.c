/* Planning of one step, in this order:
 *
 *  1. The running sequences (running.c), in policy order. A sequence that needs one token (decode) gets its row at
 *     once. A sequence that needs more (its prompt, or positions lost to a preemption) gets the blocks for its chunk.
 *     Decodes are counted first, so chunks never take their tokens. The background has no row in a step in which a
 *     live request waits or computes its prompt.
 *  2. The rest of the budget goes to chunks and to admissions, merged in policy order: a waiting request is before a
 *     running one that the policy ranks after it.
 *  3. The rest of that goes to drafts, at the ends of rows that give a token. A full step has no drafts.
 */
#include "memory/kv_table.h"
#include "scheduler/planner.h"
#include "scheduler/sequence.h"
#include "scheduler/state/checked.h"

#include <string.h>

/* ---- chunks and admissions ---- */

static void serve_chunk(struct planner *p, uint32_t i)
{
    struct sched *s = p->s;
    struct prefill *chunk = &s->scratch.prefills[i];
    struct sequence *q = &s->seqs[chunk->name];
    uint32_t logits = p->logits - --p->n_chunks_left;
    if (planner_is_ahead(p, q))
        planner_rest(p);
    if (chunk->want == 1 && planner_is_ahead(p, q) && !planner_fits_late(p, q))
        return;
    uint32_t count = planner_count(p, q, logits);
    if (count > chunk->want)
        count = chunk->want;
    if (count == 0)
        return;
    p->time->n_late += chunk->want == 1 && planner_is_ahead(p, q);
    planner_add_row(p, q, count);
}

/* The flows that should have been first have no row: the others need not wait for them. */
static void serve_ahead(struct planner *p)
{
    p->any_ahead = false;
    p->n_chunks_left = p->n_prefills;
    for (uint32_t i = 0; i < p->n_prefills && p->budget > 0; i++)
        serve_chunk(p, i);
}

/* The shortage of the head of the queue if the plan never reached it. */
static void note_shortage(const struct planner *p)
{
    struct sched *s = p->s;
    if (s->flows->queue.n == 0 || s->waits->shortage != SCHED_SHORT_OF_NOTHING)
        return;
    if (p->short_of_blocks)
        s->waits->shortage = SCHED_SHORT_OF_BLOCKS;
    else if (p->budget == 0)
        s->waits->shortage = SCHED_SHORT_OF_BUDGET;
    else if (s->caps)
        s->waits->shortage = SCHED_SHORT_OF_SEQS;
}

/* A prompt that takes at most a quantum, of a flow that is not ahead, goes before longer ones: by less than a quantum, the
 * order of flows says little, and a first token is near. */
static bool is_short(const struct planner *p, const struct sequence *q)
{
    const struct sched_cost *cost = p->s->config->cost;
    struct sched_shape alone = {0};
    if (!p->is_shared || planner_is_ahead(p, q))
        return false;
    sched_shape_add(&alone, q->n_planned, seq_remaining(q), 1);
    return sched_cost_us(cost, &alone) <= sched_cost_quantum_us(cost);
}

static void put_short_first(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t n_short = 0;
    for (uint32_t i = 0; p->is_shared && i < p->n_prefills; i++) {
        struct prefill chunk = s->scratch.prefills[i];
        chunk.is_short = is_short(p, &s->seqs[chunk.name]);
        if (!chunk.is_short)
            continue;
        memmove(&s->scratch.prefills[n_short + 1], &s->scratch.prefills[n_short], (i - n_short) * sizeof chunk);
        s->scratch.prefills[n_short++] = chunk;
    }
}

/* Returns whether a running prompt goes before a waiting one. */
static bool goes_before(const struct planner *p, const struct prefill *chunk, const struct sequence *waiting)
{
    const struct sched *s = p->s;
    bool other = is_short(p, waiting);
    return chunk->is_short != other ? chunk->is_short
                                    : queue_before(&s->flows->queue, &s->seqs[chunk->name].key, &waiting->key);
}

static void serve_prompts(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t aside[SCHED_MAX_ASIDE], n_aside = 0, i = 0;
    bool open = !p->short_of_blocks && planner_may_admit(p);
    p->n_chunks_left = p->n_prefills;
    put_short_first(p);
    while (p->budget > 0) {
        if (open)
            planner_refuse(p);
        planner_skip_capped(p);
        uint32_t top = open ? planner_head(p) : QUEUE_NONE;
        struct sequence *waiting = top != QUEUE_NONE ? &s->seqs[top] : NULL;
        if (!waiting && i == p->n_prefills)
            break;
        if (!waiting || (i < p->n_prefills && goes_before(p, &s->scratch.prefills[i], waiting))) {
            serve_chunk(p, i++);
        } else if (planner_waits_for_prefix(p, waiting)) {
            if (n_aside < SCHED_MAX_ASIDE) {
                sched_queue_remove(s, waiting);
                aside[n_aside++] = top;
            } else {
                queue_pass(&s->flows->queue, waiting->key.flow);
            }
        } else {
            if (planner_is_ahead(p, waiting))
                planner_rest(p);
            open = planner_admit(p) || planner_pass(p, waiting);
        }
    }
    if (p->slot->plan.n_rows == 0)
        serve_ahead(p);
    queue_pass_none(&s->flows->queue);
    planner_put_back(p, aside, n_aside);
    note_shortage(p);
}

/* An estimate without a search for its blocks; only flows that are ahead depend on it. */
static bool head_may_come(const struct planner *p)
{
    const struct sched *s = p->s;
    const struct sched_config *c = s->config;
    if (!s->flows->policy->flow_lead || s->flows->queue.n == 0)
        return false;
    if (c->batching != SCHED_CONTINUOUS && s->admission->batch_left == 0 && s->n_listed > 0)
        return false;
    uint32_t top = queue_top(&s->flows->queue);
    return top != QUEUE_NONE && s->seqs[top].key.order != s->admission->blocked_order;
}

/* ---- drafts ---- */

/* Reserves blocks for positions up to `end`, only blocks that no other sequence may need. Returns the reserved end. */
static uint32_t reserve_drafts(const struct planner *p, struct sequence *q, uint32_t end)
{
    struct sched *s = p->s;
    uint32_t bt = s->config->kv.block_tokens, reserved = (end + bt - 1) / bt * bt;
    int64_t slack[KV_MAX_GROUPS];
    if (end <= q->n_reserved)
        return end;
    planner_slack(p, slack);
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        if ((reserved - q->n_reserved) / bt > slack[g])
            return q->n_reserved;
    if (kv_table_reserve(q->table, q->n_computed, end))
        return q->n_reserved;
    q->n_reserved = reserved;
    return end;
}

/* The drafts' own part: what they add to the row's. */
static void charge_drafts(const struct planner *p, const struct sched_row *row, const struct sequence *q)
{
    const struct sched_cost *cost = p->s->config->cost;
    struct flow_time *t = &p->s->flows->times[q->key.flow];
    uint32_t n_logits = row->first + row->count - row->first_logit, n = row->n_draft;
    double us = sched_cost_own_us(cost, row->first, row->count, n_logits) -
                sched_cost_own_us(cost, row->first, row->count - n, n_logits - n);
    bool prompt = row->first < q->key.n_prompt;
    *(prompt ? &t->prompt_us : &t->other_us) += us + (prompt ? p->time->least_token_us * n : 0);
    *(prompt ? &t->n_prompt : &t->n_other) += n;
}

/* Appends drafts to the row. */
static void add_drafts(struct planner *p, struct sched_row *row, struct sequence *q)
{
    struct sched_plan *plan = &p->slot->plan;
    uint32_t end = row->first + row->count, n = q->n_proposed;
    n = n < p->budget ? n : p->budget;
    n = n < p->logits ? n : p->logits;
    if (n > 0 && p->time->target_us > 0)
        n = sched_cost_fit(p->s->config->cost, &p->shape, end, n, p->time->target_us);
    if (n > 0)
        n = reserve_drafts(p, q, end + n) - end;
    row->count += n;
    row->n_draft = n;
    q->n_drafting = (uint8_t)n;
    q->n_planned += n;
    plan->n_tokens += n;
    plan->n_logits += n;
    p->budget -= n;
    p->logits -= n;
    p->n_drafts += n;
    if (n > 0 && p->s->config->cost)
        sched_shape_extend(&p->shape, end, n);
    if (n > 0 && p->time->charges)
        charge_drafts(p, row, q);
}

static void serve_drafts(struct planner *p)
{
    struct sched *s = p->s;
    for (uint32_t i = 0; s->n_proposals > 0 && i < p->slot->plan.n_rows; i++) {
        struct sched_row *row = &p->slot->rows[i];
        struct sequence *q = &s->seqs[row->seq];
        if (q->n_proposed == 0 || !row->outputs.tokens)
            continue;
        add_drafts(p, row, q);
        seq_drop_proposal(s, q);
    }
}

struct sched_shape sched_plan_shape(const struct sched_plan *plan)
{
    struct sched_shape shape = {.n_block_copies = plan->n_moves};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        sched_shape_add(&shape, row->first, row->count, row->first + row->count - row->first_logit);
    }
    return shape;
}

/* Choices of a request may run after the plan that has the end of their leader's prompt: rows of a step cannot read
 * what the same step computes. */
static void release_followers(struct sched *s, const struct plan_slot *slot)
{
    for (uint32_t i = 0; i < slot->plan.n_rows; i++) {
        struct sequence *q = &s->seqs[slot->rows[i].seq];
        if (q->leads && q->n_planned >= q->key.n_prompt)
            sched_release_followers(s, q);
    }
}

/* A background prompt that fills a whole step would delay a live request that arrives meanwhile by the whole step. */
static uint32_t background_tokens(const struct sched *s, uint64_t now_us)
{
    uint32_t part = s->config->max_num_batched_tokens / SCHED_BACKGROUND_PART;
    return pace_tokens(s->pace, now_us, part < SCHED_MIN_CHUNK ? SCHED_MIN_CHUNK : part);
}

static void begin(struct planner *p, struct planner_time *time, struct sched *s, uint64_t now_us)
{
    *time = (struct planner_time){.target_us = s->config->cost ? budget_target_us(s->budget) : 0};
    *p = (struct planner){.s = s,
                          .slot = sched_slot(s, s->step + 1),
                          .now_us = now_us,
                          .budget = s->config->max_num_batched_tokens,
                          .logits = s->config->max_logit_rows,
                          .seat_of = QUEUE_NONE,
                          .background = background_tokens(s, now_us),
                          .time = time};
    p->slot->plan = (struct sched_plan){.rows = p->slot->rows,
                                        .preempted = p->slot->preempted,
                                        .admitted = p->slot->admitted,
                                        .refused = p->slot->refused};
    p->time->charges = s->config->cost && s->flows->policy->spent;
    if (p->time->charges)
        memset(s->flows->times, 0, (s->flows->queue.n_flows + 1) * sizeof *s->flows->times);
    if (s->config->cost)
        p->time->least_token_us = sched_cost_least_token_us(s->config->cost, s->config->max_num_batched_tokens);
}

/* Charges each flow its rows' parts of the step's time, less what was charged in advance. */
static void charge_flows(const struct planner *p)
{
    const struct sched_flows *f = p->s->flows;
    if (!p->time->charges)
        return;
    double token_us = sched_cost_token_us(p->s->config->cost, &p->shape);
    double later_us = token_us > p->time->least_token_us ? token_us - p->time->least_token_us : 0;
    for (uint32_t flow = 0; flow < f->queue.n_flows; flow++) {
        const struct flow_time *t = &f->times[flow];
        if (t->n_prompt > 0)
            f->policy->spent(f->state, flow, true, t->prompt_us + later_us * t->n_prompt);
        if (t->n_other > 0)
            f->policy->spent(f->state, flow, false, t->other_us + token_us * t->n_other);
    }
}

static void finish(struct planner *p)
{
    struct sched *s = p->s;
    struct sched_plan *plan = &p->slot->plan;
    if (p->prompt_planned)
        release_followers(s, p->slot);
    plan->moves = kv_cache_moves(s->kv, &plan->n_moves);
    p->shape.n_block_copies = plan->n_moves;
    double predicted = s->config->cost ? sched_cost_us(s->config->cost, &p->shape) : 0;
    if (plan->n_rows > 0) {
        plan->step = ++s->step;
        s->stats.n_steps++;
        charge_flows(p);
        budget_end(s->budget, p->now_us, plan->step, plan->n_tokens, plan->n_tokens - p->n_drafts > plan->n_rows,
                   predicted);
        /* A step that computes prompts says nothing about the time of decodes. */
        const bool only_decodes = plan->n_tokens - p->n_drafts == plan->n_rows;
        pace_end(s->pace, plan->step,
                 (struct pace_step){.planned_us = p->now_us,
                                    .n_tokens = plan->n_tokens,
                                    .has_live = p->has_live && (p->has_background || only_decodes),
                                    .has_background = p->has_background});
    }
}

/* The limit of the step, for people: the token budget, or less under the time target. */
static uint32_t token_budget(const struct planner *p)
{
    const struct sched_config *c = p->s->config;
    uint32_t given = p->slot->plan.n_tokens;
    if (p->time->target_us == 0)
        return c->max_num_batched_tokens;
    return given + sched_cost_fit(c->cost, &p->shape, 0, p->budget, p->time->target_us);
}

int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out, struct quire_error *err)
{
    struct planner_time time;
    struct planner p;
    *out = NULL;
    if (s->step - s->committed > s->config->overlap_depth)
        return quire_fail(err, QUIRE_INVALID, "scheduler: step %llu must be committed first",
                          (unsigned long long)(s->committed + 1));
    kv_cache_clear_moves(s->kv);
    waits_pass_time(s->waits, now_us);
    budget_begin(s->budget, now_us, s->committed);
    pace_begin(s->pace, now_us, s->committed);
    pins_expire(s, now_us);
    planner_rerank(s);
    begin(&p, &time, s, now_us);
    planner_skip_capped(&p);
    p.head_may_come = head_may_come(&p);
    planner_order(&p);
    planner_take_seat(&p);
    planner_serve_running(&p);
    p.slot->plan.token_budget = token_budget(&p);
    serve_prompts(&p);
    serve_drafts(&p);
    finish(&p);
    SCHED_CHECKED(s);
    *out = &p.slot->plan;
    return QUIRE_OK;
}
