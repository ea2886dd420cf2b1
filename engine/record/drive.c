#include "engine/record/drive.h"

#include "engine/record/seqs.h"
#include "memory/prefix.h"
#include "scheduler/decision_log.h"
#include "scheduler/driver.h"

#include <stdlib.h>
#include <string.h>

struct drive {
    struct sched *sched;
    struct sched_driver *driver;
    const struct recording_header *header;
    struct decision_log decisions;
    recording_observer observer;
    void *context;

    struct recording_run *run;
    size_t capacity; /* of run->requests */
    uint64_t last_id;
    uint64_t *ids;   /* [capacity], ascending */
    struct recording_seqs seqs;
    struct key256 *hashes;
    size_t n_hashes;
    const struct recording_entry *entry; /* the plan or commit that is being repeated */
    uint32_t n_taken;                    /* results of the commit that rows have taken */
    bool differs;
};

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
}

/* ---- progress of requests ----------------------------------------------------------------------- */

static struct recording_request *request_of(const struct drive *d, uint32_t seq)
{
    const struct recording_owner *owner = recording_seqs_owner(&d->seqs, seq);
    return owner ? &d->run->requests[owner->request] : NULL;
}

static struct recording_request *request_named(const struct drive *d, uint64_t id)
{
    size_t low = 0, high = d->run->n_requests;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->run->n_requests && d->ids[low] == id ? &d->run->requests[low] : NULL;
}

static int add_request(struct drive *d, const struct recording_entry *e)
{
    const struct sched_request *q = &e->submit->sched;
    struct recording_run *run = d->run;
    if (run->n_requests == d->capacity) {
        size_t capacity = 2 * d->capacity + 64;
        void *requests = realloc(run->requests, capacity * sizeof *run->requests);
        if (requests)
            run->requests = requests;
        void *ids = realloc(d->ids, capacity * sizeof *d->ids);
        if (ids)
            d->ids = ids;
        if (!requests || !ids)
            return QUIRE_NO_MEMORY;
        d->capacity = capacity;
    }
    uint32_t *n_outputs = calloc(q->n, sizeof *n_outputs);
    if (!n_outputs)
        return QUIRE_NO_MEMORY;
    d->ids[run->n_requests] = q->id;
    run->requests[run->n_requests++] = (struct recording_request){
        .request = e->submit->request,
        .offset = e->offset,
        .tenant = q->tenant,
        .class_index = q->class_index,
        .n_prompt = q->n_prompt,
        .n = q->n,
        .max_tokens = q->max_tokens,
        .background = q->background,
        .refused = e->submit->status != QUIRE_OK,
        .arrival_us = q->arrival_us,
        .n_outputs = n_outputs,
    };
    return QUIRE_OK;
}

static void note_plan(struct drive *d, uint64_t now_us, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        uint32_t seq = plan->admitted[i];
        struct recording_request *r = request_of(d, seq);
        if (r && r->admitted_us == 0)
            r->admitted_us = now_us;
        if (r && recording_seqs_owner(&d->seqs, seq)->choice == 0)
            r->n_cached = sched_cached_tokens(d->sched, seq);
    }
    for (uint32_t i = 0; i < plan->n_preempted; i++) {
        struct recording_request *r = request_of(d, plan->preempted[i]);
        if (r)
            r->n_preemptions++;
    }
    for (uint32_t i = 0; i < plan->n_refused; i++) {
        struct recording_request *r = request_of(d, plan->refused[i].seq);
        if (r)
            r->refused = true;
    }
    d->run->n_preemptions += plan->n_preempted;
    d->run->n_plans++;
    d->run->n_steps += plan->n_rows > 0;
}

static void note_results(struct drive *d, const struct recording_commit *c)
{
    for (uint32_t i = 0; i < c->n_results; i++) {
        uint32_t seq = c->results[i].seq;
        struct recording_request *r = request_of(d, seq);
        if (!r)
            continue;
        if (r->first_us == 0)
            r->first_us = c->done_us;
        r->last_us = c->done_us;
        r->n_outputs[recording_seqs_owner(&d->seqs, seq)->choice] += c->results[i].n_accepted + 1;
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Hashes the prompt's blocks under a secret of our own. Decisions depend only on which hashes are equal, never on
 * their values. */
static int make_hashes(struct drive *d, const struct recording_submit *s, struct sched_request *q)
{
    uint32_t bt = d->header->config->kv.block_tokens;
    size_t n = q->n_prompt / bt;
    struct kv_chain_root root = {.block_tokens = bt};
    memcpy(root.tenant.bytes, s->domain, sizeof s->domain);
    if (n > d->n_hashes) {
        struct key256 *hashes = realloc(d->hashes, n * sizeof *hashes);
        if (!hashes)
            return QUIRE_NO_MEMORY;
        d->hashes = hashes;
        d->n_hashes = n;
    }
    q->chain_first = kv_chain_first(&root);
    struct key256 parent = q->chain_first;
    for (size_t i = 0; i < n; i++)
        parent = d->hashes[i] = kv_chain_next(&root.secret, &parent, q->prompt + i * bt, bt);
    q->hashes = d->hashes;
    return QUIRE_OK;
}

static int submit(struct drive *d, const struct recording_entry *e, struct quire_error *err)
{
    const struct recording_submit *s = e->submit;
    struct sched_request q = s->sched;
    uint32_t seqs[128];
    uint64_t retry_us = 0;
    if (d->run->n_requests && q.id <= d->last_id)
        return quire_fail(err, QUIRE_INVALID,
                          "recording: byte %llu: the id of the request submitted here does not rise",
                          (unsigned long long)e->offset);
    d->last_id = q.id;
    if (make_hashes(d, s, &q) != QUIRE_OK || add_request(d, e) != QUIRE_OK)
        return no_memory(err);
    sched_served(d->sched, s->spec->given, s->spec->n_given / 3);
    int status = sched_submit(d->sched, &q, seqs, &retry_us, NULL);
    if (status == QUIRE_NO_MEMORY)
        return no_memory(err);
    d->differs = status != s->status || retry_us != s->retry_us ||
                 (status == QUIRE_OK && memcmp(seqs, s->seqs, q.n * sizeof *seqs) != 0);
    for (uint32_t i = 0; status == QUIRE_OK && i < q.n; i++)
        if (recording_seqs_set(&d->seqs, seqs[i], d->run->n_requests - 1, i) != QUIRE_OK)
            return no_memory(err);
    return QUIRE_OK;
}

static void cancel(struct drive *d, uint64_t id)
{
    struct recording_request *r = request_named(d, id);
    if (r && !r->refused) /* the engine ends a refused one in the same call */
        r->cancelled = true;
    sched_cancel(d->sched, id);
}

static void cancel_choice(struct drive *d, uint32_t seq)
{
    struct recording_request *r = request_of(d, seq);
    d->differs = !r;
    if (!r)
        return;
    r->cancelled = true;
    sched_cancel_seq(d->sched, seq);
}

/* Must accept as many drafts as the live scheduler did. */
static void propose(struct drive *d, const struct recording_propose *p)
{
    d->differs = sched_propose(d->sched, p->seq, p->tokens, p->n) != p->n;
}

/* The recorder writes only changes. */
static void gate(struct drive *d, const struct recording_gate *g)
{
    d->differs = !sched_gate(d->sched, g->seq, g->gated);
}

static int on_planned(void *context, uint64_t now_us, const struct sched_plan *made, struct quire_error *err)
{
    struct drive *d = context;
    (void)err;
    decision_log_add(&d->decisions, now_us, made);
    note_plan(d, now_us, made);
    struct key256 now = decision_log_now(&d->decisions);
    d->differs = memcmp(&now, &d->entry->plan.decisions, sizeof now) != 0;
    d->run->recorded_decisions = d->entry->plan.decisions;
    if (d->observer)
        d->observer(d->context, now_us, made, d->sched);
    return QUIRE_OK;
}

/* Returns the next recorded result if it belongs to this row; otherwise the row's sequence had ended. */
static uint32_t on_take(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens)
{
    struct drive *d = context;
    const struct recording_commit *c = &d->entry->commit;
    uint32_t n = 0;
    (void)tokens;
    for (uint32_t i = 0; i < step->plan->n_rows && n < c->n_results; i++)
        if (step->plan->rows[i].outputs.tokens && c->results[n].seq == step->plan->rows[i].seq) {
            results[n] = c->results[n];
            n++;
        }
    d->n_taken = n;
    return n;
}

static void on_committed(void *context, const struct sched_committed *c)
{
    struct drive *d = context;
    const struct sched_row *row = c->step->plan->rows;
    for (uint32_t i = 0; i < c->n_results; i++) {
        row = sched_committed_row(c, i, row);
        if (!c->discarded[i])
            draft_counts_add(&d->run->drafts, row->n_draft, c->results[i].n_accepted);
    }
}

static const struct sched_driver_calls calls = {.planned = on_planned, .take = on_take, .committed = on_committed};

static void plan(struct drive *d, const struct recording_entry *e)
{
    const struct sched_plan *made;
    d->entry = e;
    if (sched_driver_plan(d->driver, e->now_us, &made, NULL) != QUIRE_OK)
        d->differs = true;
}

static void commit(struct drive *d, const struct recording_entry *e)
{
    d->entry = e;
    note_results(d, &e->commit);
    d->differs = sched_driver_commit(d->driver, NULL) != QUIRE_OK || d->n_taken != e->commit.n_results;
}

static void retire(struct drive *d, uint32_t recorded)
{
    uint32_t seq;
    d->differs = !sched_next_retired(d->sched, &seq) || seq != recorded;
    if (!d->differs)
        recording_seqs_drop(&d->seqs, seq);
}

static int carry_out(struct drive *d, const struct recording_entry *e, struct quire_error *err)
{
    switch (e->kind) {
    case RECORDING_SUBMIT: return submit(d, e, err);
    case RECORDING_CANCEL: cancel(d, e->cancel); break;
    case RECORDING_CANCEL_CHOICE: cancel_choice(d, e->seq); break;
    case RECORDING_NO_MORE: sched_no_more(d->sched); break;
    case RECORDING_PROPOSE: propose(d, &e->propose); break;
    case RECORDING_GATE: gate(d, &e->gate); break;
    case RECORDING_PLAN: plan(d, e); break;
    case RECORDING_COMMIT: commit(d, e); break;
    case RECORDING_RETIRED: retire(d, e->seq); break;
    case RECORDING_POLICY: return sched_set_policy(d->sched, e->policy.policy, e->policy.options, err);
    case RECORDING_UNPIN: sched_unpin(d->sched, e->tenant); break;
    case RECORDING_SERVED: sched_served(d->sched, e->served.items, e->served.n); break;
    case RECORDING_COST: d->differs = sched_set_cost(d->sched, e->cost, NULL) != QUIRE_OK; break;
    case RECORDING_CLOSE:
        d->run->closed = true;
        d->differs = e->close.n_plans != d->run->n_plans;
        break;
    case RECORDING_HEADER:
    case RECORDING_LENGTHS:
    case RECORDING_FINISH:
    case RECORDING_END: break;
    }
    return QUIRE_OK;
}

static int drive_all(struct drive *d, struct recording *r, struct quire_error *err)
{
    struct recording_entry e;
    int status;
    recording_rewind(r);
    while ((status = recording_next(r, &e, err)) == QUIRE_OK && e.kind != RECORDING_END) {
        status = carry_out(d, &e, err);
        if (status != QUIRE_OK)
            return status;
        if (d->differs) {
            d->run->wrong_offset = e.offset;
            break;
        }
    }
    d->run->agrees = !d->differs;
    d->run->n_left_out = recording_left_out(r);
    d->run->decisions = decision_log_now(&d->decisions);
    if (d->run->n_plans == 0)
        d->run->recorded_decisions = d->run->decisions;
    d->run->stats = sched_stats(d->sched);
    return status;
}

int recording_drive(struct recording *r, recording_observer observer, void *context, struct recording_run *out,
                    struct quire_error *err)
{
    struct drive d = {.header = recording_header(r), .observer = observer, .context = context, .run = out};
    *out = (struct recording_run){0};
    int status = sched_create(d.header->config, &d.sched, err);
    if (status == QUIRE_OK)
        status = sched_driver_create(d.sched, &calls, &d, &d.driver, err);
    decision_log_begin(&d.decisions);
    if (status == QUIRE_OK)
        status = drive_all(&d, r, err);
    sched_driver_destroy(d.driver);
    sched_destroy(d.sched);
    recording_seqs_free(&d.seqs);
    free(d.ids);
    free(d.hashes);
    if (status != QUIRE_OK)
        recording_run_free(out);
    return status;
}

void recording_run_free(struct recording_run *run)
{
    for (size_t i = 0; i < run->n_requests; i++)
        free(run->requests[i].n_outputs);
    free(run->requests);
    run->requests = NULL;
    run->n_requests = 0;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double between(uint64_t from, uint64_t to)
{
    return to == 0 ? -1 : to < from ? 0 : (double)(to - from);
}

double recording_ttft_us(const struct recording_request *r)
{
    return between(r->arrival_us, r->first_us);
}

double recording_tpot_us(const struct recording_request *r)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->n_outputs[i] > most)
            most = r->n_outputs[i];
    return most < 2 ? -1 : between(r->first_us, r->last_us) / (most - 1);
}

double recording_e2el_us(const struct recording_request *r)
{
    return between(r->arrival_us, r->last_us);
}

double recording_queue_us(const struct recording_request *r)
{
    return between(r->arrival_us, r->admitted_us);
}
