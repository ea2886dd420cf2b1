/* The engine thread: mail in, a turn of the scheduler's driver, events out; asleep when there is nothing to do. */
#include "engine/run/loop.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/run/events.h"
#include "engine/run/rank.h"
#include "engine/run/speculate.h"
#include "engine/run/step.h"
#include "scheduler/fit/cost_fitter.h"

#include <stdlib.h>

/* While a sequence lives the scheduler has something to run, or says until when it has not. If it gives
 * nothing this often in a row and nobody leaves, a promise was broken, and an error is better than a server that
 * hangs. */
#define MAX_EMPTY_PLANS 8u

/* When to come back for what was refused because something is full, such as the share of the blocks
 * that pins may hold. */
#define RETRY_UNKNOWN_US 1000000u

/* How old a tenant's counters may be: copying up to a thousand of them in every step would show. */
#define TENANTS_EVERY_US 100000u
#define RATIO_EVERY_US 1000000u /* lines about --adaptive-budget, about --adaptive-batching and about cost models */

/* How often an idle engine looks whether the other ranks live. */
#define LOOK_AFTER_RANKS_US 200000u

/* An engine that was idle for this long checks the invariants of its scheduler and its KV cache, and again after the same
 * time. The check takes at most a thousandth of an idle engine's time. */
#define CHECK_IDLE_US 2000000u
#define CHECK_IDLE_PART 1000u

struct loop {
    bool is_static;
    bool dead;
    bool no_more; /* no request follows the parked ones */
    struct request *parked; /* whose grammar is still compiled; newest first */
    uint32_t n_parked; /* their choices */
    uint32_t n_empty_plans; /* in a row, though something lives and nothing left */
    uint64_t sleep_until_us; /* nothing can run before, unless mail comes; 0 = something can */
    uint64_t tenants_due_us; /* when to publish `tenants` again */
    uint64_t next_key;
    uint64_t last_admitted; /* the caller's id; 0: none admitted yet */
    double logged_ratio; /* last logged ratio of measured to predicted step times */
    uint64_t ratio_due_us; /* when to log it again */
    double logged_batch_wait, logged_batch_size; /* likewise: factors of the limits of batches */
    uint64_t batches_due_us;
    uint64_t cost_due_us; /* when to log a fitted cost model again */
    struct sched_tenant_stats tenants[]; /* [n_tenants] as last published */
};

int loop_create(struct engine *e, bool is_static, struct quire_error *err)
{
    const uint32_t n_tenants = e->policy->options.n_tenants;
    struct loop *loop = calloc(1, sizeof *loop + n_tenants * sizeof loop->tenants[0]);
    e->run->loop = loop;
    if (!loop)
        return quire_fail(err, QUIRE_NO_MEMORY, "engine: out of memory");
    loop->is_static = is_static;
    loop->next_key = 1;
    loop->logged_ratio = loop->logged_batch_wait = loop->logged_batch_size = 1;
    return QUIRE_OK;
}

void loop_destroy(struct loop *loop)
{
    free(loop);
}

/* ---- mail ------------------------------------------------------------------------------------ */

static void watch_submit(const struct engine *e, const struct request *r, const struct sched_request *request,
                         int status, uint64_t retry_us, const uint32_t *seqs)
{
    struct request_spec spec = sampling_resolved(&r->sampling);
    const struct engine_watch_submit submit = {
        .request = r->engine_id, .sched = request, .spec = &spec, .status = status, .retry_us = retry_us, .seqs = seqs};
    ENGINE_WATCH(e, submitted, &submit);
}

/* Rounded up, at least 1. */
static uint32_t retry_ms(uint64_t retry_us)
{
    uint64_t ms = retry_us / 1000 + (retry_us % 1000 != 0);
    return ms == 0 ? 1 : ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static void take_served(struct engine *e, const uint32_t *served, uint32_t n_served)
{
    if (e->run->loop->dead || n_served == 0)
        return;
    sched_served(e->run->sched, served, n_served);
    ENGINE_WATCH(e, served, quire_now_us(), served, n_served);
}

/* Gives a request to the scheduler. */
static void place_now(struct engine *e, struct request *r)
{
    uint32_t seqs[REQUEST_MAX_CHOICES];
    struct quire_error err;
    r->key = e->run->loop->next_key++;
    struct sched_request request = request_schedule(r->spec, r->key, r->arrival_us);
    request.host_gated = sampling_needs_tokens(&r->sampling) || r->grammar;
    if (r->hashes) {
        request.chain_first = r->hashes->chain_first;
        request.hashes = r->hashes->blocks;
    }
    uint64_t retry_us = 0;
    take_served(e, r->spec->given, r->spec->n_given / 3);
    uint32_t *prompt = request_take_prompt(r);
    request.owned_prompt = &prompt;
    int status = sched_submit(e->run->sched, &request, seqs, &retry_us, &err);
    request.owned_prompt = NULL;
    if (e->n_watches) {
        uint32_t n_tokens;
        request.prompt = prompt ? prompt : sched_tokens(e->run->sched, seqs[0], &n_tokens);
        watch_submit(e, r, &request, status, retry_us, seqs);
    }
    free(prompt);
    request_drop_hashes(r);
    if (status == QUIRE_EXHAUSTED) {
        r->retry_after_ms = retry_ms(retry_us ? retry_us : RETRY_UNKNOWN_US);
        request_end(e, r, ENGINE_FINISH_REFUSED, retry_us ? NULL : err.text);
        return;
    }
    if (status != QUIRE_OK) {
        request_end(e, r, ENGINE_FINISH_ERROR, err.text);
        return;
    }
    r->n_placed = r->spec->n;
    for (uint32_t i = 0; i < r->spec->n; i++) {
        r->choices[i].seq = seqs[i];
        e->run->owners[seqs[i]] = (struct seq_owner){.request = r, .choice = i};
        speculate_placed(e, seqs[i]);
    }
}

static void park(struct engine *e, struct request *r)
{
    r->grammar->next_parked = e->run->loop->parked;
    e->run->loop->parked = r;
    e->run->loop->n_parked += r->spec->n;
}

/* A request waits outside the scheduler while its grammar is compiled. */
static void place(struct engine *e, struct request *r)
{
    if (!r->grammar) {
        place_now(e, r);
        return;
    }
    switch (compiled_state(r->grammar->compiled)) {
    case COMPILED_PENDING: park(e, r); return;
    case COMPILED_FAILED:
        r->error = *compiled_error(r->grammar->compiled);
        r->error.parameter = "structured_outputs";
        r->status = QUIRE_INVALID;
        request_end(e, r, ENGINE_FINISH_ERROR, NULL);
        return;
    case COMPILED_READY:
        request_constrain(r, constraints_grammars(e->constraints));
        place_now(e, r);
        return;
    }
}

/* In the order of their arrival. Those that were cancelled meanwhile have their last event. */
static void place_parked(struct engine *e)
{
    struct request *newest = e->run->loop->parked, *oldest = NULL;
    e->run->loop->parked = NULL;
    e->run->loop->n_parked = 0;
    for (struct request *r = newest, *next; r; r = next) {
        next = r->grammar->next_parked;
        r->grammar->next_parked = oldest;
        oldest = r;
    }
    for (struct request *r = oldest, *next; r; r = next) {
        next = r->grammar->next_parked;
        if (r->n_open > 0)
            place(e, r);
    }
}

/* What the answer is expected to be was not known when it was submitted. */
static void take_prediction(struct engine *e, struct request *r)
{
    request_take_prediction(r);
    for (uint32_t i = 0; r->n_placed > 0 && i < r->spec->n; i++)
        if (!r->choices[i].done)
            speculate_predicted(e, r->choices[i].seq);
}

static void carry_out_cancels(struct engine *e, struct request *r)
{
    for (uint32_t i = 0; i < r->spec->n; i++) {
        struct request_choice *c = &r->choices[i];
        if (!c->cancel_now || c->done)
            continue;
        event_done(e, r, i, ENGINE_FINISH_CANCELLED, -1);
        if (r->n_placed == 0)
            continue;
        speculate_cancelled(e, c->seq);
        sched_cancel_seq(e->run->sched, c->seq);
        ENGINE_WATCH(e, cancelled_choice, quire_now_us(), c->seq);
    }
}

static void change_policy(struct engine *e, const struct mailbox_orders *orders)
{
    struct sched_policy_options options = orders->options;
    struct quire_error err;
    options.n_tenants = e->policy->options.n_tenants;
    options.tenants = e->policy->options.tenants;
    if (sched_set_policy(e->run->sched, orders->policy, &options, &err) != QUIRE_OK) {
        quire_log(QUIRE_LOG_ERROR, "engine", "the scheduling policy stays %s: %s", sched_policy_of(e->run->sched)->name,
                  err.text);
        return;
    }
    ENGINE_WATCH(e, policy_changed, quire_now_us(), orders->policy, &options);
    quire_log(QUIRE_LOG_INFO, "engine", "the scheduling policy is %s now", orders->policy->name);
}

static void unpin(struct engine *e, uint32_t tenant)
{
    sched_unpin(e->run->sched, tenant);
    ENGINE_WATCH(e, unpinned, quire_now_us(), tenant);
}

static void carry_out_orders(struct engine *e, const struct mailbox_orders *orders)
{
    if (e->run->loop->dead)
        return;
    if (orders->policy)
        change_policy(e, orders);
    if (orders->unpin_all)
        unpin(e, MAILBOX_ALL_TENANTS);
    else if (orders->unpin)
        for (uint32_t t = 0; t < e->policy->options.n_tenants; t++)
            if (orders->unpin_tenants[t / 64] >> t % 64 & 1)
                unpin(e, t);
    e->run->loop->no_more |= orders->no_more;
    if (e->run->loop->no_more && !e->run->loop->parked) { /* otherwise requests follow */
        e->run->loop->no_more = false;
        sched_no_more(e->run->sched);
        ENGINE_WATCH(e, no_more, quire_now_us());
    }
}

/* Takes hit reports, which rank what a request may drop. Places what was submitted, then the others, so that a prediction and a cancel always find their request placed. */
static void take_mail(struct engine *e, const struct mailbox_mail *mail)
{
    take_served(e, mail->served, mail->n_served);
    for (struct request *r = mail->submitted, *next; r; r = next) {
        next = r->next;
        place(e, r);
    }
    for (struct request *r = mail->predicted; r; r = r->mail.next_predicted)
        take_prediction(e, r);
    for (struct request *r = mail->cancels, *next; r; r = next) {
        next = r->next_to_end;
        carry_out_cancels(e, r);
    }
    place_parked(e);
    carry_out_orders(e, &mail->orders);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* unused: nothing lives that could refer to a block. */
static void measure_kv(struct engine *e, bool unused, struct engine_stats *stats)
{
#define CLEAR(member, type, tag, from, ...) STATS_WHEN(STATS_IS_KV_##from)(stats->member = 0;)
#define ADD(member, type, tag, from, ...) STATS_WHEN(STATS_IS_KV_##from)(stats->member += usage.STATS_OF_KV_##from;)
    stats->kv_usage = stats->swap_usage = 0;
    stats->n_blocks_leaked = 0;
    STATS_ROWS(CLEAR)
    for (uint32_t g = 0; g < engine_plan_n_groups(e->plan); g++) {
        struct kv_usage usage = sched_kv_usage(e->run->sched, g);
        uint32_t used = usage.n_blocks - usage.n_free;
        double share = (double)used / usage.n_blocks;
        double host = usage.n_host_blocks ? (double)usage.n_host_used / usage.n_host_blocks : 0;
        if (share > stats->kv_usage)
            stats->kv_usage = share;
        if (host > stats->swap_usage)
            stats->swap_usage = host;
        STATS_ROWS(ADD)
        if (unused)
            stats->n_blocks_leaked += used;
    }
#undef CLEAR
#undef ADD
}

/* At most one line a second: the change since the last one. */
static void log_budget(struct engine *e, double ratio)
{
    double before = e->run->loop->logged_ratio;
    uint64_t now_us = ratio == before ? 0 : quire_now_us();
    if (ratio == before || now_us < e->run->loop->ratio_due_us)
        return;
    e->run->loop->ratio_due_us = now_us + RATIO_EVERY_US;
    e->run->loop->logged_ratio = ratio;
    quire_log(QUIRE_LOG_INFO, "engine",
              "steps take %.2f times what the cost model says (%.2f before): the"
              " last was allowed %u tokens",
              ratio, before, e->run->report.stats.token_budget);
}

/* The same for --adaptive-batching. */
static void log_batches(struct engine *e, double wait, double size)
{
    struct loop *loop = e->run->loop;
    bool changed = wait != loop->logged_batch_wait || size != loop->logged_batch_size;
    uint64_t now_us = changed ? quire_now_us() : 0;
    if (!changed || now_us < loop->batches_due_us)
        return;
    quire_log(QUIRE_LOG_INFO, "engine",
              "batches: waits are %.2f times the configured ones (%.2f before), sizes at most %.2f times (%.2f before)",
              wait, loop->logged_batch_wait, size, loop->logged_batch_size);
    loop->batches_due_us = now_us + RATIO_EVERY_US;
    loop->logged_batch_wait = wait;
    loop->logged_batch_size = size;
}

static void measure(struct engine *e, struct engine_stats *stats)
{
    struct sched_stats s = sched_stats(e->run->sched);
#define COPY(member, type, tag, from, ...) STATS_WHEN(STATS_IS_SCHED_##from)(stats->member = s.member;)
    STATS_ROWS(COPY)
#undef COPY
    stats->n_waiting += e->run->loop->n_parked;
    if (e->constraints) {
        const struct constraints_stats masks = constraints_stats(e->constraints);
        stats->n_masks = masks.n_masks;
        stats->mask_us = masks.work_us;
        stats->mask_wait_us = masks.waited_us;
    }
    stats->kept_bytes = s.n_kept_blocks * e->plan->kv_block_bytes;
    stats->policy = sched_policy_of(e->run->sched)->name;
    stats->policy_figure = sched_policy_figure(e->run->sched, &stats->policy_figure_name);
    log_budget(e, s.budget_ratio);
    log_batches(e, s.batch_wait, s.batch_size);
    measure_kv(e, sched_idle(e->run->sched) && s.n_pins + s.n_kept == 0, stats);
}

/* What takes longer to add up than a step may cost. */
static void measure_at_times(struct engine *e, struct engine_stats *stats)
{
    uint64_t now_us = quire_now_us();
    if (now_us < e->run->loop->tenants_due_us && !sched_idle(e->run->sched))
        return;
    e->run->loop->tenants_due_us = now_us + TENANTS_EVERY_US;
    stats->n_experts = forward_expert_load(e->forward, stats->expert_tokens, ENGINE_MAX_EXPERTS,
                                           &stats->expert_imbalance);
    for (uint32_t t = 0; t < e->policy->options.n_tenants; t++)
        e->run->loop->tenants[t] = sched_tenant_stats(e->run->sched, t);
    mailbox_publish_tenants(e->mailbox, e->run->loop->tenants);
}

void engine_publish(struct engine *e, uint64_t busy_us)
{
    struct engine_stats *stats = &e->run->report.stats;
    if (!e->run->loop->dead) {
        measure(e, stats);
        measure_at_times(e, stats);
    } else {
        stats->n_running = stats->n_waiting = 0;
        stats->n_waiting_tokens = 0;
        stats->kv_usage = 0;
    }
    e->run->report.busy_us = busy_us;
    mailbox_publish(e->mailbox, &e->run->report);
    e->run->report.n_tokens = 0;
    e->run->report.n_finished = 0;
}

/* The scheduler names who was before a request by our key; people know it by the caller's id. */
static void note_admissions(struct engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        const struct seq_owner *owner = &e->run->owners[plan->admitted[i]];
        struct request_choice *c = &owner->request->choices[owner->choice];
        if (c->admitted)
            continue;
        c->admitted = true;
        c->blocker = e->run->loop->last_admitted;
        e->run->loop->last_admitted = owner->request->engine_id;
    }
}

static void end_refused(struct engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_refused; i++) {
        const struct seq_owner *owner = &e->run->owners[plan->refused[i].seq];
        owner->request->retry_after_ms = retry_ms(plan->refused[i].retry_us);
        event_done(e, owner->request, owner->choice, ENGINE_FINISH_REFUSED, -1);
    }
}

/* A plan without rows while nothing is in flight: either it did something else, or there is a time or a
 * submission to wait for, or a promise was broken. */
static int nothing_to_run(struct engine *e, const struct sched_plan *plan, uint64_t now_us, struct quire_error *err)
{
    bool waits_for_a_batch = e->run->loop->is_static && sched_stats(e->run->sched).n_running == 0;
    if (plan->n_moves || plan->n_refused)
        return QUIRE_OK;
    if (plan->wake_us > now_us)
        e->run->loop->sleep_until_us = plan->wake_us;
    else if (waits_for_a_batch)
        e->run->loop->sleep_until_us = MAILBOX_FOREVER;
    else if (++e->run->loop->n_empty_plans > MAX_EMPTY_PLANS)
        return quire_fail(err, QUIRE_INTERNAL, "the scheduler has requests but runs none");
    return QUIRE_OK;
}

static int on_planned(void *engine, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err)
{
    struct engine *e = engine;
    ENGINE_WATCH(e, planned, now_us, plan, e->run->sched);
    if (plan->n_rows > 0)
        e->run->loop->n_empty_plans = 0;
    speculate_planned(e, plan);
    note_admissions(e, plan);
    end_refused(e, plan);
    engine_publish(e, 0); /* what was admitted has left the queue now, not only when the step is over */
    return step_move(e, plan, err);
}

static void on_retired(void *engine, uint32_t seq)
{
    struct engine *e = engine;
    struct request *r = e->run->owners[seq].request;
    ENGINE_WATCH(e, retired, seq);
    speculate_retired(e, seq);
    e->run->owners[seq].request = NULL;
    e->run->loop->n_empty_plans =
        0; /* who was cancelled before it ran leaves with an empty plan, and that is no broken promise */
    request_left_scheduler(r);
}

const struct sched_driver_calls engine_steps = {.planned = on_planned,
                                                .launch = step_launch,
                                                .wait = step_wait,
                                                .take = step_take,
                                                .committed = step_committed,
                                                .retired = on_retired};

static void log_cost(struct engine *e, const struct sched_cost *cost, uint64_t now_us)
{
    if (now_us < e->run->loop->cost_due_us)
        return;
    e->run->loop->cost_due_us = now_us + RATIO_EVERY_US;
    quire_log(QUIRE_LOG_INFO, "engine",
              "cost model fitted to the last steps: %.3f ms a step of one token, %.3f ms one of %u; off by %.0f %%",
              cost->points[0].us / 1000, cost->points[cost->n_points - 1].us / 1000,
              cost->points[cost->n_points - 1].n_tokens, 100 * cost_fitter_error(e->run->fitter));
}

/* Between two steps, and with none in flight. */
static int follow_costs(struct engine *e, struct quire_error *err)
{
    struct sched_cost cost;
    if (!e->run->fitter || !cost_fitter_change(e->run->fitter, &cost))
        return QUIRE_OK;
    int status = sched_driver_set_cost(e->run->driver, &cost, err);
    if (status != QUIRE_OK)
        return status;
    const uint64_t now_us = quire_now_us();
    ENGINE_WATCH(e, cost_changed, now_us, &cost);
    log_cost(e, &cost, now_us);
    return QUIRE_OK;
}

static int step(struct engine *e, struct quire_error *err)
{
    const struct sched_plan *plan;
    bool idle = sched_driver_in_flight(e->run->driver) == 0;
    int status = follow_costs(e, err);
    uint64_t now_us = quire_now_us();
    if (status == QUIRE_OK)
        status = speculate_propose(e, err);
    if (status == QUIRE_OK)
        status = sched_driver_turn(e->run->driver, now_us, &plan, err);
    return status == QUIRE_OK && idle && plan->n_rows == 0 ? nothing_to_run(e, plan, now_us, err) : status;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Ends every live request. No new one can come any more. */
static void end_all(struct engine *e, enum engine_finish finish, const char *message)
{
    struct request *r;
    while ((r = mailbox_any_live(e->mailbox)) != NULL) {
        if (finish == ENGINE_FINISH_ERROR)
            r->status = QUIRE_UNAVAILABLE;
        request_end(e, r, finish, message);
        events_flush(e);
    }
}

/* A broken backend or a broken promise: nobody is served any more, and everybody is told. */
static void die(struct engine *e, const char *reason)
{
    struct mailbox_mail mail;
    mailbox_die(e->mailbox, reason);
    mailbox_drain(e->mailbox, 0, &mail);
    e->run->loop->dead = true;
    e->run->loop->parked = NULL; /* end_all() ends them too */
    ENGINE_WATCH(e, died, reason); /* before anybody who drains is done with its last request */
    end_all(e, ENGINE_FINISH_ERROR, reason);
    if (mail.orders.number)
        event_order(e, mail.orders.number);
}

/* The last thing: what an uncommitted step of a dead engine still held is let go of unseen. */
static void abandon_scheduler(struct engine *e)
{
    for (uint32_t i = 0; i < e->run->n_owners; i++)
        if (e->run->owners[i].request)
            request_left_scheduler(e->run->owners[i].request);
}

static bool has_work(const struct engine *e)
{
    return !e->run->loop->dead && !sched_idle(e->run->sched);
}

/* A reference too many loses a KV block, and one too few gives a request the keys and values of another. Such an engine
 * ends as with any other fault, before it computes the next request. */
static int check_idle(const struct engine *e, uint64_t *due_us, struct quire_error *err)
{
    const uint64_t now_us = quire_now_us();
    int status = QUIRE_OK;
    uint64_t took_us = 0;
    if (!e->run->loop->dead && sched_idle(e->run->sched)) {
        if (now_us < *due_us)
            return QUIRE_OK;
        status = sched_check(e->run->sched, err);
        took_us = quire_now_us() - now_us;
    }
    const uint64_t pause_us = took_us * CHECK_IDLE_PART;
    *due_us = now_us + (pause_us > CHECK_IDLE_US ? pause_us : CHECK_IDLE_US);
    if (status)
        quire_error_prefix(err, "a check of the idle engine found an internal error; please report it: ");
    return status;
}

/* Until when to wait for mail; 0 = not at all. check_us: when the next check of the idle engine is due. */
static uint64_t wait_until(const struct engine *e, uint64_t check_us)
{
    const struct loop *loop = e->run->loop;
    const uint64_t until = has_work(e) ? loop->sleep_until_us : loop->dead ? MAILBOX_FOREVER : check_us;
    const uint64_t look = e->ranks && !loop->dead && until > 0 ? quire_now_us() + LOOK_AFTER_RANKS_US : MAILBOX_FOREVER;
    return look < until ? look : until;
}

/* A turn of what there is to do. */
static int turn(struct engine *e, uint64_t *check_us, struct quire_error *err)
{
    if (e->ranks && !e->run->loop->dead && ranks_check(e->ranks, err) != QUIRE_OK)
        return QUIRE_UNAVAILABLE;
    int status = has_work(e) ? step(e, err) : QUIRE_OK;
    if (status == QUIRE_OK && e->ranks && !e->run->loop->dead)
        status = rank_look(e, !has_work(e), err);
    return status == QUIRE_OK ? check_idle(e, check_us, err) : status;
}

void *engine_main(void *engine)
{
    struct engine *e = engine;
    uint64_t check_us = quire_now_us() + CHECK_IDLE_US;
    for (;;) {
        struct mailbox_mail mail;
        mailbox_drain(e->mailbox, wait_until(e, check_us), &mail);
        e->run->loop->sleep_until_us = 0;
        if (mail.closing)
            break;
        uint64_t begin = quire_now_us();
        take_mail(e, &mail);
        if (mail.orders.number) {
            engine_publish(e, 0);
            event_order(e, mail.orders.number);
        }
        struct quire_error err;
        if (turn(e, &check_us, &err) != QUIRE_OK)
            die(e, err.text);
        engine_publish(e, quire_now_us() - begin);
        events_flush(e);
        events_reap(e);
    }
    end_all(e, ENGINE_FINISH_CANCELLED, NULL);
    events_reap(e);
    abandon_scheduler(e);
    return NULL;
}
