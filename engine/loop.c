/* The engine thread: mail in, plan, launch, commit, events out; asleep when there is nothing to do.
 *
 * The loop holds for any overlap depth d: plan n is launched, then the step before it by d is
 * committed. With d = 0 that is the same step.
 */
#include "engine/engine_internal.h"

#include "base/log.h"

#include <stdlib.h>
#include <time.h>

/* The scheduler always has something to run while a sequence lives. If it gives nothing this often
 * in a row, a promise was broken, and an error is better than a server that hangs. */
#define MAX_EMPTY_PLANS 8u

uint64_t engine_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* ---- mail ------------------------------------------------------------------------------------ */

static void watch_submit(const struct engine *e, const struct request *r,
                         const struct sched_request *request, int status, uint64_t retry_us,
                         const uint32_t *seqs)
{
    struct engine_sampling sampling = sampling_resolved(&r->sampling);
    const struct engine_watch_submit submit = {.request = r->id,
                                               .sched = request,
                                               .sampling = &sampling,
                                               .status = status,
                                               .retry_us = retry_us,
                                               .seqs = seqs};
    ENGINE_WATCH(e, submitted, &submit);
}

/* Gives a request to the scheduler. */
static void place(struct engine *e, struct request *r)
{
    uint32_t seqs[REQUEST_MAX_CHOICES];
    struct quire_error err;
    r->key = e->next_key++;
    const struct sched_request request = {
        .id = r->key,
        .prompt = r->prompt,
        .n_prompt = r->n_prompt,
        .max_tokens = r->max_tokens,
        .n = r->n,
        .prompt_logprobs = r->sampling.n_prompt_logprobs >= 0,
        .priority = r->priority,
        .arrival_us = engine_now_us(),
        .deadline_us = r->deadline_us,
        .tenant = r->tenant_index,
        .chain_first = r->chain_first,
        .hashes = r->hashes,
    };
    uint64_t retry_us = 0;
    int status = sched_submit(e->sched, &request, seqs, &retry_us, &err);
    if (e->n_watches)
        watch_submit(e, r, &request, status, retry_us, seqs);
    request_drop_prompt(r);
    if (status != QUIRE_OK) {
        request_end(e, r, ENGINE_FINISH_ERROR, err.text);
        return;
    }
    r->n_placed = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        r->choices[i].seq = seqs[i];
        e->owners[seqs[i]] = (struct seq_owner){.request = r, .choice = i};
    }
}

static void carry_out_cancels(struct engine *e, struct request *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct request_choice *c = &r->choices[i];
        if (!c->cancel_now || c->done)
            continue;
        event_done(e, r, i, ENGINE_FINISH_CANCELLED, -1);
        sched_cancel_seq(e->sched, c->seq);
        ENGINE_WATCH(e, cancelled_choice, engine_now_us(), c->seq);
    }
}

/* Places what was submitted, then cancels, so that a cancel always finds its request placed. */
static void take_mail(struct engine *e, const struct mailbox_mail *mail)
{
    for (struct request *r = mail->submitted, *next; r; r = next) {
        next = r->next;
        place(e, r);
    }
    for (struct request *r = mail->cancels, *next; r; r = next) {
        next = r->next_to_end;
        carry_out_cancels(e, r);
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void collect_retired(struct engine *e)
{
    uint32_t seq;
    while (sched_next_retired(e->sched, &seq)) {
        struct request *r = e->owners[seq].request;
        ENGINE_WATCH(e, retired, seq);
        e->owners[seq].request = NULL;
        request_left_scheduler(r);
    }
}

static void measure_kv(struct engine *e, bool idle, struct engine_stats *stats)
{
    stats->kv_usage = 0;
    stats->n_blocks_leaked = 0;
    for (uint32_t g = 0; g < e->plan.n_kv_groups; g++) {
        struct kv_usage usage = sched_kv_usage(e->sched, g);
        uint32_t used = usage.n_blocks - usage.n_free;
        double share = (double)used / usage.n_blocks;
        if (share > stats->kv_usage)
            stats->kv_usage = share;
        if (idle)
            stats->n_blocks_leaked += used;
    }
}

static void publish(struct engine *e, uint64_t busy_us)
{
    struct engine_stats *stats = &e->report.stats;
    if (!e->dead) {
        struct sched_stats s = sched_stats(e->sched);
        stats->n_running = s.n_running;
        stats->n_waiting = s.n_waiting;
        stats->n_waiting_tokens = s.n_waiting_tokens;
        stats->n_preemptions = s.n_preemptions;
        stats->n_prefix_queries = s.n_prefix_queries;
        stats->n_prefix_hits = s.n_prefix_hits;
        stats->n_steps = s.n_steps;
        measure_kv(e, sched_idle(e->sched), stats);
    } else {
        stats->n_running = stats->n_waiting = 0;
        stats->n_waiting_tokens = 0;
        stats->kv_usage = 0;
    }
    e->report.busy_us = busy_us;
    mailbox_publish(e->mailbox, &e->report);
    e->report.n_tokens = 0;
    e->report.n_finished = 0;
}

/* Plans and launches the next step, then commits what the overlap leaves no room for. */
static int step(struct engine *e, struct quire_error *err)
{
    const struct sched_plan *plan;
    uint64_t now_us = engine_now_us();
    int status = sched_plan(e->sched, now_us, &plan, err);
    if (status != QUIRE_OK)
        return status;
    ENGINE_WATCH(e, planned, now_us, plan, e->sched);
    publish(e, 0); /* what was admitted has left the queue now, not only when the step is over */
    if (plan->n_rows > 0) {
        struct step_slot *slot = &e->slots[e->n_launched % (e->depth + 1)];
        status = step_launch(e, slot, plan, err);
        if (status != QUIRE_OK)
            return status;
        e->n_launched++;
        e->n_in_flight++;
        e->n_empty_plans = 0;
    } else if (e->n_in_flight == 0 && ++e->n_empty_plans > MAX_EMPTY_PLANS) {
        return quire_fail(err, QUIRE_INTERNAL, "the scheduler has requests but runs none");
    }
    uint32_t leave = plan->n_rows > 0 ? e->depth : 0;
    while (e->n_in_flight > leave) {
        uint64_t oldest = e->n_launched - e->n_in_flight;
        status = step_commit(e, &e->slots[oldest % (e->depth + 1)], err);
        if (status != QUIRE_OK)
            return status;
        e->n_in_flight--;
    }
    return QUIRE_OK;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Ends every live request. No new one can come any more. */
static void end_all(struct engine *e, enum engine_finish finish, const char *message)
{
    struct request *r;
    while ((r = mailbox_any_live(e->mailbox)) != NULL) {
        request_end(e, r, finish, message);
        events_flush(e);
    }
}

/* A broken backend or a broken promise: nobody is served any more, and everybody is told. */
static void die(struct engine *e, const char *reason)
{
    struct mailbox_mail mail;
    quire_log(QUIRE_LOG_ERROR, "engine", "%s", reason);
    mailbox_die(e->mailbox, reason);
    mailbox_drain(e->mailbox, false, &mail);
    e->dead = true;
    end_all(e, ENGINE_FINISH_ERROR, reason);
}

/* The last thing: what an uncommitted step of a dead engine still held is let go of unseen. */
static void abandon_scheduler(struct engine *e)
{
    for (uint32_t i = 0; i < e->n_owners; i++)
        if (e->owners[i].request)
            request_left_scheduler(e->owners[i].request);
}

static bool has_work(const struct engine *e)
{
    return !e->dead && (e->n_in_flight > 0 || !sched_idle(e->sched));
}

void *engine_main(void *engine)
{
    struct engine *e = engine;
    for (;;) {
        struct mailbox_mail mail;
        mailbox_drain(e->mailbox, !has_work(e), &mail);
        if (mail.closing)
            break;
        uint64_t begin = engine_now_us();
        take_mail(e, &mail);
        struct quire_error err;
        int status = has_work(e) ? step(e, &err) : QUIRE_OK;
        if (status == QUIRE_OK)
            collect_retired(e);
        else
            die(e, err.text);
        publish(e, engine_now_us() - begin);
        events_flush(e);
        events_reap(e);
    }
    end_all(e, ENGINE_FINISH_CANCELLED, NULL);
    events_reap(e);
    abandon_scheduler(e);
    return NULL;
}
