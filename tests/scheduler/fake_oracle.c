/* The scheduler's obligations, computed again: the order of simple policies, accounts, and pins. */
#include "scheduler/scheduler.h"
#include "tests/scheduler/fake_oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fake_fail(struct fake_engine *e, const char *format, ...)
{
    if (!e->failure[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(e->failure, sizeof e->failure, format, args);
        va_end(args);
    }
    return false;
}

/* ---- order ---- */

static bool policy_is(const struct fake_engine *e, const char *name)
{
    return strcmp(e->config.policy->name, name) == 0;
}

bool fake_has_order(const struct fake_engine *e)
{
    if (policy_is(e, "priority"))
        for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
            if (e->config.policy_options.class_weights[i] > 0)
                return false;
    return policy_is(e, "fcfs") || policy_is(e, "priority") || policy_is(e, "edf");
}

/* In microseconds from the reference arrival; far below 128 bits. */
static __int128 rank_of(const struct fake_engine *e, const struct fake_seq *d)
{
    const struct sched_policy_options *o = &e->config.policy_options;
    const struct fake_request *r = &d->request;
    if (policy_is(e, "priority"))
        return (__int128)r->arrival_us + (__int128)r->priority * o->ageing_us;
    if (!policy_is(e, "edf") || d->n_committed + d->n_sampling > r->n_prompt)
        return 0;
    if (r->deadline_us)
        return r->deadline_us > r->arrival_us ? r->deadline_us : r->arrival_us;
    return r->arrival_us + (o->class_ttft_us[r->class_index] ? o->class_ttft_us[r->class_index] : o->ageing_us);
}

bool fake_ranks_before(const struct fake_engine *e, const struct fake_seq *a, const struct fake_seq *b)
{
    __int128 x = rank_of(e, a), y = rank_of(e, b);
    if (a->request.background != b->request.background)
        return b->request.background;
    return x != y ? x < y : a->order < b->order;
}

bool fake_may_be_before(const struct fake_engine *e, const struct fake_seq *a, const struct fake_seq *b)
{
    bool computes = a->request.n_prompt == a->n_committed || a->n_preempted > 0;
    if (fake_ranks_before(e, a, b))
        return true;
    if (!a->lent || !computes || a->request.background != b->request.background)
        return false;
    __int128 x = a->lent_rank, y = rank_of(e, b);
    return x != y ? x < y : a->order < b->order;
}

static bool share_a_block(const struct fake_engine *e, const struct fake_seq *a, const struct fake_seq *b)
{
    uint32_t bt = e->config.kv.block_tokens;
    return a->request.tenant == b->request.tenant && a->n_committed >= bt && b->request.n_prompt >= bt &&
           memcmp(a->tokens, b->tokens, bt * sizeof a->tokens[0]) == 0;
}

static void see_prefix(struct fake_engine *e, struct fake_seq *r)
{
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        struct fake_seq *o = &e->seqs[i];
        bool may_hit = !o->request.no_prefix_hits && (!o->request.prompt_logprobs || o->n_preempted > 0);
        if (o == r || !o->used || o->over || o->running || !may_hit || !share_a_block(e, o, r))
            continue;
        o->may_wait = true;
        if (!r->lent || rank_of(e, o) < r->lent_rank)
            r->lent_rank = rank_of(e, o);
        r->lent = true;
    }
}

void fake_see_prefixes(struct fake_engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
        e->seqs[i].may_wait = false;
    for (uint32_t i = 0; i < plan->n_admitted; i++)
        e->seqs[plan->admitted[i]].lent = false;
    if (!e->config.kv.prefix_caching || !fake_has_order(e))
        return;
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        struct fake_seq *r = &e->seqs[i];
        bool runs = r->used && !r->over && r->running;
        for (uint32_t j = 0; j < plan->n_admitted; j++)
            runs |= plan->admitted[j] == i;
        if (runs && (r->request.n_prompt == r->n_committed || r->n_preempted > 0))
            see_prefix(e, r);
    }
}

/* ---- pins ---- */

/* Returns whether the prompt of d, or its generated tokens, begin with the pinned prefix. */
static bool begins_with(const struct fake_engine *e, const struct fake_seq *d, const struct fake_pin *pin)
{
    uint32_t n = pin->n_blocks * e->config.kv.block_tokens;
    return pin->tenant == d->request.tenant && d->n_committed >= n &&
           memcmp(pin->tokens, d->tokens, n * sizeof *d->tokens) == 0;
}

static bool has_windows(const struct fake_engine *e)
{
    for (uint32_t g = 0; g < e->config.kv.n_groups; g++)
        if (e->config.kv.groups[g].window)
            return true;
    return false;
}

static void remove_pin(struct fake_engine *e, uint32_t index)
{
    memmove(&e->pins[index], &e->pins[index + 1], (--e->n_pins - index) * sizeof e->pins[0]);
}

static void remove_due(struct fake_engine *e, uint64_t now_us)
{
    for (uint32_t i = e->n_pins; i-- > 0;)
        if (e->pins[i].due_us <= now_us)
            remove_pin(e, i);
}

int fake_pin_status(struct fake_engine *e, const struct fake_request *r, bool taken)
{
    const struct sched_config *c = &e->config;
    uint32_t n_blocks = r->n_prompt / c->kv.block_tokens, least = UINT32_MAX;
    uint32_t percent = c->max_pinned_percent ? c->max_pinned_percent : 50;
    if (r->pin_us == 0)
        return QUIRE_OK;
    if (!c->kv.prefix_caching || n_blocks == 0 || (r->background && c->preemption == SCHED_PREEMPT_NEVER))
        return QUIRE_INVALID;
    remove_due(e, r->arrival_us);
    for (uint32_t g = 0; g < c->kv.n_groups; g++)
        least = c->kv.groups[g].n_blocks < least ? c->kv.groups[g].n_blocks : least;
    uint32_t n = sched_stats(e->sched).n_pinned_blocks + (taken ? 0 : n_blocks);
    return n > least * percent / 100 ? QUIRE_EXHAUSTED : QUIRE_OK;
}

void fake_pin_fill(struct fake_engine *e, const struct fake_seq *d)
{
    struct fake_pin pin = {.tenant = d->request.tenant,
                           .n_blocks = d->request.n_prompt / e->config.kv.block_tokens,
                           .ttl_us = d->request.pin_us,
                           .due_us = e->plan_us + d->request.pin_us};
    if (d->request.pin_us == 0)
        return;
    for (uint32_t i = 0; i < e->n_pins; i++)
        if (e->pins[i].n_blocks == pin.n_blocks && begins_with(e, d, &e->pins[i])) {
            e->pins[i].ttl_us = pin.ttl_us;
            e->pins[i].due_us = pin.due_us;
            return;
        }
    if (e->n_pins == FAKE_MAX_PINS) {
        e->pins_unknown = true;
        return;
    }
    memcpy(pin.tokens, d->tokens, d->request.n_prompt * sizeof pin.tokens[0]);
    memmove(e->pins + 1, e->pins, e->n_pins++ * sizeof e->pins[0]);
    e->pins[0] = pin;
    e->seen.pinned++;
}

/* Expired pins are gone and, if blocks were short, so are those that expire first. */
void fake_pins_after_plan(struct fake_engine *e)
{
    remove_due(e, e->now_us);
    while (e->n_pins > sched_stats(e->sched).n_pins && !e->pins_unknown) {
        uint32_t soonest = 0;
        for (uint32_t i = 1; i < e->n_pins; i++)
            if (e->pins[i].due_us < e->pins[soonest].due_us)
                soonest = i;
        remove_pin(e, soonest);
    }
}

/* A window may have passed blocks that a pin needs. */
void fake_pins_after_commit(struct fake_engine *e, uint32_t n_before)
{
    uint32_t n = sched_stats(e->sched).n_pins;
    if (!has_windows(e) || n >= e->n_pins)
        return;
    if (e->n_pins - n_before == 1 && n == n_before)
        remove_pin(e, 0);
    else
        e->pins_unknown = true;
}

/* An admission takes at least the pinned part of its prompt, and keeps it. */
static bool check_pins_hit(struct fake_engine *e, const struct fake_seq *d, uint32_t first)
{
    uint32_t bt = e->config.kv.block_tokens, most = (d->n_committed - 1) / bt;
    bool bypasses = d->request.prompt_logprobs || d->request.no_prefix_hits;
    if (e->pins_unknown)
        return true;
    for (uint32_t i = 0; i < e->n_pins; i++) {
        struct fake_pin *pin = &e->pins[i];
        if (!begins_with(e, d, pin))
            continue;
        if (pin->n_blocks <= first / bt)
            pin->due_us = e->now_us + pin->ttl_us;
        else if (!bypasses && (pin->n_blocks <= most || !has_windows(e)) && first / bt < most)
            return fake_fail(e, "a hit of %u positions where %u blocks are pinned", first,
                             pin->n_blocks <= most ? pin->n_blocks : most);
    }
    return true;
}

/* ---- accounts ---- */

static void pass_by(struct fake_engine *e, const struct fake_seq *d)
{
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        struct fake_seq *o = &e->seqs[i];
        if (o->used && !o->over && !o->admitted && o->order < d->order)
            o->n_overtaken++;
    }
}

bool fake_see_admitted(struct fake_engine *e, uint32_t name, uint32_t first)
{
    struct fake_seq *d = &e->seqs[name];
    struct sched_account a = sched_account(e->sched, name);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SCHED_N_SHORTAGES; i++)
        sum += a.queue_us[i];
    if (d->admitted)
        d->preempted_us += e->now_us - d->preempted_at_us;
    else if (a.admitted_us != e->now_us)
        return fake_fail(e, "sequence %u: admitted at another time", name);
    if (a.n_overtaken > d->n_overtaken)
        return fake_fail(e, "sequence %u was overtaken by %u, counted %u", name, d->n_overtaken, a.n_overtaken);
    if (!d->admitted)
        pass_by(e, d);
    d->admitted = true;
    if (a.arrival_us != d->request.arrival_us || sum != a.admitted_us - a.arrival_us)
        return fake_fail(e, "sequence %u waited %llu us, %llu are accounted for", name,
                         (unsigned long long)(a.admitted_us - a.arrival_us), (unsigned long long)sum);
    return d->n_choices > 1 || check_pins_hit(e, d, first);
}

void fake_see_preempted(struct fake_engine *e, uint32_t name)
{
    e->seqs[name].n_preempted++;
    e->seqs[name].preempted_at_us = e->now_us;
}

void fake_see_row(struct fake_engine *e, const struct sched_row *row)
{
    struct fake_seq *d = &e->seqs[row->seq];
    uint32_t tenant = d->request.tenant;
    if (e->fault == FAULT_TENANT && row->count > 1) {
        tenant = (tenant + 1) % FAKE_TENANTS;
        e->fault = FAULT_NONE;
    }
    uint32_t end = row->first + row->count - row->n_draft;
    for (uint32_t p = row->first; p < end; p++) {
        d->n_recomputed += d->reached[p];
        e->tenants[tenant].n_prompt += !d->reached[p] && p < d->request.n_prompt;
    }
    /* Positions before a computed one exist, too: taken from others. */
    for (uint32_t p = 0; p < end; p++)
        d->reached[p] = true;
    d->n_sampling += row->outputs.tokens;
}

static bool check_tenant(struct fake_engine *e, uint32_t tenant)
{
    struct sched_tenant_stats stats = sched_tenant_stats(e->sched, tenant);
    uint32_t n_running = 0, n_waiting = 0;
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        const struct fake_seq *d = &e->seqs[i];
        if (d->used && !d->over && d->request.tenant == tenant)
            *(d->running ? &n_running : &n_waiting) += 1;
    }
    if (stats.n_prompt_tokens != e->tenants[tenant].n_prompt ||
        stats.n_generated_tokens != e->tenants[tenant].n_generated)
        return fake_fail(e, "tenant %u: %llu prompt and %llu generated tokens, counted %llu, %llu", tenant,
                         (unsigned long long)e->tenants[tenant].n_prompt,
                         (unsigned long long)e->tenants[tenant].n_generated, (unsigned long long)stats.n_prompt_tokens,
                         (unsigned long long)stats.n_generated_tokens);
    if (stats.n_running != n_running || stats.n_waiting != n_waiting)
        return fake_fail(e, "tenant %u: %u running, %u waiting, counted %u, %u", tenant, n_running, n_waiting,
                         stats.n_running, stats.n_waiting);
    return true;
}

bool fake_check_accounts(struct fake_engine *e)
{
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        const struct fake_seq *d = &e->seqs[i];
        if (!d->used || d->over)
            continue;
        struct sched_account a = sched_account(e->sched, i);
        if (a.n_preemptions != d->n_preempted || a.n_recomputed != d->n_recomputed || a.preempted_us != d->preempted_us)
            return fake_fail(e, "sequence %u: %u preemptions, %u tokens again, counted %u, %u", i, d->n_preempted,
                             d->n_recomputed, a.n_preemptions, a.n_recomputed);
    }
    for (uint32_t t = 0; t < e->config.policy_options.n_tenants; t++)
        if (!check_tenant(e, t))
            return false;
    return true;
}
