/* One step. In this order:
 *
 *  1. The running, in policy order: a sequence that wants one token (decode) has its row at once; one
 *     that wants more (its prompt, or what a preemption lost) gets the blocks for its chunk. Decodes
 *     are counted first, so that chunks never take their tokens from them.
 *  2. What is left of the budget goes to chunks and to admissions, merged in policy order: a request
 *     that waits goes before a running one that the policy ranks after it.
 *  3. What is left then goes to drafts, at the ends of rows that give a token: a step without room has none.
 *
 * Blocks run out only in the first part. The last of the running then gives way, so a sequence is
 * never preempted for one that the policy ranks after it, and one that is last itself gives way to
 * nobody: it leaves. When blocks are already on their way back (a launched step still touches
 * them), the sequence waits for the next plan instead of taking more victims. Nothing is admitted
 * in a plan that was short of blocks.
 */
#include "scheduler/planner.h"

#include <string.h>

/* ---- how long a row may be ---- */

/* Prompt tokens that the live flows but one want of this step, those that wait included if there is a
 * place for them. */
static uint64_t wanted_by_others(const struct planner *p, uint32_t flow)
{
    const struct sched *s = p->s;
    const struct sched_config *c = &s->config;
    uint32_t background = s->queue.n_flows;
    bool waiting = p->head_may_come && s->n_listed < c->max_num_seqs &&
                   (c->max_partial_prefills == 0 || p->n_partial < c->max_partial_prefills);
    uint64_t n = p->wanted - s->flow_wants[flow];
    if (flow != background)
        n -= s->flow_wants[background];
    if (waiting)
        n += s->queue.n_tokens - s->queue.heaps[flow].n_tokens;
    if (waiting && flow != background)
        n -= s->queue.heaps[background].n_tokens;
    return n;
}

/* Prompt tokens that one flow may still have in this step: a share of what there is, or what the others
 * leave when they want less. Only prompts under way that go on after this step are bounded: who is
 * admitted is of the flow that comes first, and what is nearly done had better be done. */
static uint32_t share_left(const struct planner *p, const struct sequence *q)
{
    const struct sched *s = p->s;
    uint32_t flow = q->key.flow, given = s->flow_given[flow];
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

/* Until when a row may take that has only a share: tokens far into a long prompt cost more than others, so
 * the time is shared, too, and the first such row of a flow has all of its part. */
static double shared_target(const struct planner *p, uint32_t flow)
{
    double spent = sched_cost_us(&p->s->config.cost, &p->shape);
    double left = p->target_us > spent ? p->target_us - spent : 0;
    return p->s->flow_given[flow] > 0 ? spent : spent + left * p->share / 100;
}

/* What fits into the step until then, but a little in any case. */
static uint32_t bound_time(const struct planner *p, const struct sequence *q, uint32_t count, double until_us)
{
    uint32_t room = sched_cost_room(&p->s->config.cost, &p->shape, q->n_planned, count, until_us);
    uint32_t given = p->slot->plan.n_tokens - p->slot->plan.n_rows;
    uint32_t least = given < SCHED_MIN_CHUNK ? SCHED_MIN_CHUNK - given : 0;
    if (room < least)
        room = least;
    return count < room ? count : room;
}

/* Bounds of rows of more than one token. */
static uint32_t bound_chunk(const struct planner *p, const struct sequence *q, uint32_t count)
{
    const struct sched_config *c = &p->s->config;
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

/* A thousand decodes are one row each in every plan: what they go through is inlined, so that all that
 * is of longer rows falls away. */
#define FOR_DECODES static inline __attribute__((always_inline))

/* Of `count` positions, how many a row of q can have. */
FOR_DECODES uint32_t bound_row(const struct planner *p, const struct sequence *q, uint32_t count, uint32_t logits)
{
    if (count > p->budget)
        count = p->budget;
    if (count > 1)
        count = bound_chunk(p, q, count);
    if (q->prompt_logits && q->n_prompt_logits < q->n_prompt) {
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

/* Tells the policy and the counters what the row gives. */
FOR_DECODES void account_row(struct planner *p, struct sequence *q, uint32_t count, bool samples)
{
    struct sched *s = p->s;
    struct sched_tenant_stats *tenant = &s->tenants[q->key.tenant];
    uint32_t first = q->n_planned, end = first + count;
    uint32_t fresh = end > q->n_reached ? end - (first > q->n_reached ? first : q->n_reached) : 0;
    uint32_t of_prompt = end < q->n_prompt ? end : q->n_prompt;
    uint32_t prompt_from = first > q->n_reached ? first : q->n_reached;
    struct sched_service service = {.n_prompt = of_prompt > prompt_from ? of_prompt - prompt_from : 0,
                                    .n_recomputed = count - fresh,
                                    .n_generated = samples};
    if (count > 1 || first < q->n_prompt)
        q->account.n_chunks++;
    if (service.n_recomputed > 0) {
        q->account.n_recomputed += service.n_recomputed;
        s->stats.n_recomputed += service.n_recomputed;
    }
    tenant->n_prompt_tokens += service.n_prompt;
    if (count > 1) {
        s->flow_given[q->key.flow] += count;
        p->wanted -= p->wanted < count ? p->wanted : count;
        uint64_t *wants = &s->flow_wants[q->key.flow];
        *wants -= *wants < count ? *wants : count;
    }
    if (s->config.policy->served)
        s->config.policy->served(s->policy_state, &q->key, &service);
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
    if (q->prompt_logits && q->n_prompt_logits < q->n_prompt) {
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
        .tokens = samples, .scores = scores, .vector = q->vector && first < q->n_prompt && end >= q->n_prompt};
    row->adapter = q->adapter;
    plan->n_tokens += count;
    plan->n_logits += end - first_logit;
    p->budget -= count;
    p->logits -= end - first_logit;
    if (s->config.cost.n_points > 0)
        sched_shape_add(&p->shape, first, count, end - first_logit);
    account_row(p, q, count, samples);
    for (uint32_t i = q->n_known; i < end; i++)
        q->tokens[i] = SCHED_PENDING;
    q->n_planned = end;
    q->n_sampling += samples;
    q->last_step = s->step + 1;
    q->last_first = first;
    p->prompt_planned |= q->leads && end >= q->n_prompt;
}

void planner_add_row(struct planner *p, struct sequence *q, uint32_t count)
{
    add_row(p, q, count);
}

/* ---- blocks ---- */

/* Positions that the sequence is promised blocks for: what is known of it, or, in reservation mode, all
 * it may ever have. */
static uint32_t promised(const struct sched *s, const struct sequence *q)
{
    if (s->config.preemption == SCHED_PREEMPT_NEVER)
        return q->n_positions;
    return q->n_planned + seq_remaining(q);
}

uint32_t planner_owed(const struct planner *p, const struct sequence *q, uint32_t group)
{
    const struct kv_config *kv = &p->s->config.kv;
    uint32_t n = kv_blocks_needed(kv, group, promised(p->s, q), sched_reach(p->s));
    uint32_t held = kv_table_held(q->table, group);
    n += q->n_shared[group];
    return n > held ? n - held : 0;
}

void planner_add_owed(struct planner *p, const struct sequence *q)
{
    if (promised(p->s, q) <= q->n_reserved)
        return;
    for (uint32_t g = 0; g < p->s->config.kv.n_groups; g++)
        p->owed[g] += planner_owed(p, q, g);
}

/* The last of the running gives its blocks back, at once or when its launched step is committed. */
static struct sequence *preempt_last(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t name = s->running[--s->n_listed];
    struct sequence *q = &s->seqs[name];
    p->slot->preempted[p->slot->plan.n_preempted++] = name;
    s->stats.n_preemptions++;
    sched_stops_running(s, q);
    if (q->last_step > s->committed) {
        q->state = SEQ_LEAVING;
        s->n_touched++;
    } else {
        sched_requeue(s, q);
    }
    return q;
}

static bool make_room(struct planner *p, struct sequence *q, uint32_t n_tokens)
{
    struct sched *s = p->s;
    uint32_t bt = s->config.kv.block_tokens;
    if (n_tokens <= q->n_reserved)
        return true;
    while (kv_table_reserve(q->table, q->n_computed, n_tokens)) {
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

/* Prompt tokens that the decodes leave. Chunks are given blocks for no more. */
static uint32_t left_for_prompts(const struct planner *p)
{
    uint32_t most = p->s->config.max_num_batched_tokens;
    return most > p->n_decodes ? most - p->n_decodes : 0;
}

/* A chunk: its blocks now, its row when it is its turn. */
static bool prepare_chunk(struct planner *p, struct sequence *q, uint32_t logits, uint32_t *prompt_left)
{
    uint32_t want = planner_count(p, q, logits);
    if (want > *prompt_left)
        want = *prompt_left;
    if (want == 0)
        return true;
    if (!make_room(p, q, q->n_planned + want))
        return false;
    p->s->prefills[p->n_prefills++] = (struct prefill){.name = sched_name(p->s, q), .want = want};
    *prompt_left -= want;
    p->s->flow_given[q->key.flow] += want;
    return true;
}

static void serve_running(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t prompt_left = left_for_prompts(p);
    for (uint32_t i = 0; i < s->n_listed; i++) {
        struct sequence *q = &s->seqs[s->running[i]];
        uint32_t left = seq_remaining(q);
        /* One logit row stays for each sequence after this one. */
        uint32_t logits = p->logits - (s->n_listed - 1 - i);
        if (q->n_computed < q->n_prompt)
            s->computing[p->n_computing++] = sched_name(s, q);
        if (left == 1) {
            if (bound_row(p, q, 1, logits) > 0) {
                if (q->n_planned >= q->n_reserved && !make_room(p, q, q->n_planned + 1))
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
    /* Promised so far; given when it is their turn. */
    memset(s->flow_given, 0, (s->queue.n_flows + 1) * sizeof *s->flow_given);
}

/* ---- chunks and admissions ---- */

static void serve_chunk(struct planner *p, uint32_t i)
{
    struct sched *s = p->s;
    struct prefill *chunk = &s->prefills[i];
    struct sequence *q = &s->seqs[chunk->name];
    uint32_t count = planner_count(p, q, p->logits - --p->n_chunks_left);
    if (count > chunk->want)
        count = chunk->want;
    if (count > 0)
        planner_add_row(p, q, count);
}

/* What keeps the head of the queue waiting when the plan never came to it. */
static void note_shortage(const struct planner *p)
{
    struct sched *s = p->s;
    if (s->queue.n == 0 || s->shortage != SCHED_SHORT_OF_NOTHING)
        return;
    if (p->short_of_blocks)
        s->shortage = SCHED_SHORT_OF_BLOCKS;
    else if (p->budget == 0)
        s->shortage = SCHED_SHORT_OF_BUDGET;
}

static void serve_prompts(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t aside[SCHED_MAX_ASIDE], n_aside = 0, i = 0;
    bool open = !p->short_of_blocks && planner_may_admit(p);
    p->n_chunks_left = p->n_prefills;
    while (p->budget > 0) {
        if (open)
            planner_refuse(p);
        uint32_t top = open ? planner_head(p) : QUEUE_NONE;
        struct sequence *waiting = top != QUEUE_NONE ? &s->seqs[top] : NULL;
        if (!waiting && i == p->n_prefills)
            break;
        if (!waiting ||
            (i < p->n_prefills && queue_before(&s->queue, &s->seqs[s->prefills[i].name].key, &waiting->key))) {
            serve_chunk(p, i++);
        } else if (planner_waits_for_prefix(p, waiting)) {
            open = n_aside < SCHED_MAX_ASIDE;
            if (open) {
                sched_queue_remove(s, waiting);
                aside[n_aside++] = top;
            }
        } else {
            open = planner_admit(p) || planner_pass(p, waiting);
            p->head_may_come = open;
        }
    }
    queue_pass_none(&s->queue);
    planner_put_back(p, aside, n_aside);
    note_shortage(p);
}

/* As far as it can be told without looking for its blocks; only shares depend on it. */
static bool head_may_come(const struct planner *p)
{
    const struct sched *s = p->s;
    const struct sched_config *c = &s->config;
    if (p->share == 0 || s->queue.n == 0)
        return false;
    if (c->batching != SCHED_CONTINUOUS && s->batch_left == 0 && s->n_listed > 0)
        return false;
    return s->seqs[queue_top(&s->queue)].key.order != s->blocked_order;
}

/* ---- drafts ---- */

/* Blocks for positions up to `end`, of those that nobody else may come to need; else what is reserved. */
static uint32_t reserve_drafts(const struct planner *p, struct sequence *q, uint32_t end)
{
    struct sched *s = p->s;
    uint32_t bt = s->config.kv.block_tokens, reserved = (end + bt - 1) / bt * bt;
    int64_t slack[KV_MAX_GROUPS];
    if (end <= q->n_reserved)
        return end;
    planner_slack(p, slack);
    for (uint32_t g = 0; g < s->config.kv.n_groups; g++)
        if ((reserved - q->n_reserved) / bt > slack[g])
            return q->n_reserved;
    if (kv_table_reserve(q->table, q->n_computed, end))
        return q->n_reserved;
    q->n_reserved = reserved;
    return end;
}

/* The row goes on with guesses. */
static void add_drafts(struct planner *p, struct sched_row *row, struct sequence *q)
{
    struct sched_plan *plan = &p->slot->plan;
    uint32_t end = row->first + row->count, n = q->n_proposed;
    n = n < p->budget ? n : p->budget;
    n = n < p->logits ? n : p->logits;
    if (n > 0 && p->target_us > 0)
        n = sched_cost_room(&p->s->config.cost, &p->shape, end, n, p->target_us);
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
    if (n > 0 && p->s->config.cost.n_points > 0)
        sched_shape_extend(&p->shape, end, n);
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

/* Choices of a request may run once its leader's prompt is planned; from the next plan on, since a
 * step's rows cannot read what the same step computes. */
static void release_followers(struct sched *s, const struct plan_slot *slot)
{
    for (uint32_t i = 0; i < slot->plan.n_rows; i++) {
        struct sequence *q = &s->seqs[slot->rows[i].seq];
        if (q->leads && q->n_planned >= q->n_prompt)
            sched_release_followers(s, q);
    }
}

/* Time goes by in the accounts: what passed since the last plan was spent on what the head of the queue
 * was short of then. */
static void pass_time(struct sched *s, uint64_t now_us)
{
    if (now_us > s->now_us) {
        if (s->now_us > 0)
            s->short_us[s->shortage] += now_us - s->now_us;
        s->now_us = now_us;
    }
    s->shortage = SCHED_SHORT_OF_NOTHING;
}

static void begin(struct planner *p, struct sched *s, uint64_t now_us)
{
    *p = (struct planner){.s = s,
                          .slot = sched_slot(s, s->step + 1),
                          .now_us = now_us,
                          .budget = s->config.max_num_batched_tokens,
                          .logits = s->config.max_logit_rows,
                          .target_us = budget_target_us(&s->budget)};
    p->slot->plan = (struct sched_plan){.rows = p->slot->rows,
                                        .preempted = p->slot->preempted,
                                        .admitted = p->slot->admitted,
                                        .refused = p->slot->refused};
    if (s->config.policy->prefill_share)
        p->share = s->config.policy->prefill_share(s->policy_state);
}

static void finish(struct planner *p)
{
    struct sched *s = p->s;
    struct sched_plan *plan = &p->slot->plan;
    if (p->prompt_planned)
        release_followers(s, p->slot);
    plan->moves = kv_cache_moves(s->kv, &plan->n_moves);
    p->shape.n_block_copies = plan->n_moves;
    double predicted = s->config.cost.n_points ? sched_cost_us(&s->config.cost, &p->shape) : 0;
    if (plan->n_rows > 0) {
        plan->step = ++s->step;
        s->stats.n_steps++;
        budget_end(&s->budget, p->now_us, plan->step, plan->n_tokens, plan->n_tokens - p->n_drafts > plan->n_rows,
                   predicted);
    }
}

/* What the step may be, for people: the token budget, or what of it the time target leaves. */
static uint32_t token_budget(const struct planner *p)
{
    const struct sched_config *c = &p->s->config;
    uint32_t given = p->slot->plan.n_tokens;
    if (p->target_us == 0)
        return c->max_num_batched_tokens;
    return given + sched_cost_room(&c->cost, &p->shape, 0, p->budget, p->target_us);
}

/* What the rows so far leave to prompts. */
static uint32_t for_prompts(const struct planner *p)
{
    uint32_t left = p->slot->plan.token_budget - p->slot->plan.n_tokens;
    uint32_t least = p->budget < SCHED_MIN_CHUNK ? p->budget : SCHED_MIN_CHUNK;
    return left > least ? left : least;
}

int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out, struct quire_error *err)
{
    struct planner p;
    *out = NULL;
    if (s->step - s->committed > s->config.overlap_depth)
        return quire_fail(err, QUIRE_INVALID, "scheduler: step %llu must be committed first",
                          (unsigned long long)(s->committed + 1));
    kv_cache_clear_moves(s->kv);
    pass_time(s, now_us);
    budget_begin(&s->budget, now_us, s->committed);
    pins_expire(s, now_us);
    planner_rerank(s);
    begin(&p, s, now_us);
    planner_order(&p);
    p.head_may_come = head_may_come(&p);
    p.prompt_budget = left_for_prompts(&p);
    serve_running(&p);
    p.slot->plan.token_budget = token_budget(&p);
    p.prompt_budget = for_prompts(&p);
    serve_prompts(&p);
    serve_drafts(&p);
    finish(&p);
    *out = &p.slot->plan;
    return QUIRE_OK;
}
