/* The life of a batch: its input is checked, its lines run (server/bulk/run/run.h), its results become files. Blocking
 * steps are jobs, one at a time for each batch. A step that fails because of the disk is tried again. */
#include "server/bulk/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/bulk/run/run.h"
#include "server/bulk/space.h"
#include "server/front/tenant/inside.h"
#include "server/front/tenant/tenants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_RUNNING 4 /* batches of a tenant */
#define RETRY_MS 5000
#define MAX_TRIES 12 /* of opening its files */

static void check_done(struct bulk_job *job);
static void schedule(struct bulk *b);

static struct active *find(const struct bulk *b, const char *id)
{
    struct active *a;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (strcmp(a->batch->id, id) == 0)
            return a;
    }
    return NULL;
}

static void free_active(struct active *a)
{
    TAILQ_REMOVE(&a->bulk->actives, a, link);
    bulk_batch_free(a->batch);
    free(a->batch);
    for (size_t i = 0; i < a->n_headers; i++)
        free(a->headers[i]);
    free(a);
}

static void enter(struct active *a, enum bulk_state state)
{
    a->batch->state = state;
    if (a->batch->at[state] == 0)
        a->batch->at[state] = (int64_t)time(NULL);
}

static void log_failure(const struct active *a, const char *what, const struct quire_error *err)
{
    quire_log(QUIRE_LOG_WARN, "batch", "%s: %s, and will be tried again: %s", a->batch->id, what, err->text);
}

/* ---- saving --------------------------------------------------------------------------------- */

struct save {
    struct bulk_job job;
    struct bulk *bulk;
    struct bulk_batch batch;
    int status;
    struct quire_error err;
};

static void save_work(struct bulk_job *job)
{
    struct save *s = (struct save *)job;
    s->status = bulk_store_update_batch(s->bulk->store, &s->batch, &s->err);
}

static void save_done(struct bulk_job *job)
{
    struct save *s = (struct save *)job;
    struct active *a = find(s->bulk, s->batch.id);
    if (s->status != QUIRE_OK && a) {
        log_failure(a, "its state cannot be saved", &s->err);
        a->unsaved = true;
    }
    bulk_batch_free(&s->batch);
    free(s);
}

static void save(struct active *a)
{
    struct save *s = calloc(1, sizeof *s);
    a->unsaved = true;
    if (!s || bulk_batch_copy(&s->batch, a->batch) != QUIRE_OK) {
        free(s);
        return;
    }
    a->unsaved = false;
    s->bulk = a->bulk;
    s->job = (struct bulk_job){.work = save_work, .done = save_done};
    bulk_disk_do(a->bulk->disk, BULK_SHORT, &s->job);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void note_end(struct active *a)
{
    const struct bulk_batch *b = a->batch;
    for (int i = 0; i < BULK_OUTCOMES; i++)
        a->bulk->n_lines[i] += b->counts.n[i] - a->at_open.n[i];
    a->bulk->n_ended[b->state]++;
    const struct quire_log_field fields[] = {
        {.key = "batch", .text = b->id},
        {.key = "tenant", .text = b->tenant},
        {.key = "state", .text = bulk_state_names[b->state]},
        {.key = "lines", .number = b->counts.n_lines},
        {.key = "failed", .number = b->counts.n_lines - b->counts.n[BULK_SUCCEEDED]},
        {.key = "input_tokens", .number = (double)b->counts.input_tokens},
        {.key = "output_tokens", .number = (double)b->counts.output_tokens},
        {.key = "cost", .number = (double)b->counts.cost / 1e12},
        {.key = "seconds", .number = (double)(b->at[b->state] - b->at[BULK_VALIDATING])},
    };
    quire_log_fields(QUIRE_LOG_INFO, "batch", fields, sizeof fields / sizeof *fields, "%s",
                     b->why ? b->why : "a batch has ended");
}

static void end_done(struct bulk_job *job)
{
    struct active *a = active_of(job);
    struct bulk *b = a->bulk;
    a->busy = false;
    if (a->status != QUIRE_OK) {
        log_failure(a, "its end cannot be saved", &a->err);
        a->retry_ms = quire_now_ms() + RETRY_MS;
        return;
    }
    a->batch->state = a->batch->end;
    note_end(a);
    free_active(a);
    if (!b->stopping)
        schedule(b);
}

/* Its output files exist, or it has none. */
static void end(struct active *a)
{
    a->phase = ACTIVE_ENDING;
    if (a->batch->at[a->batch->end] == 0)
        a->batch->at[a->batch->end] = (int64_t)time(NULL);
    active_do(a, BULK_SHORT, active_end_work, end_done);
}

static void fail(struct active *a, const struct quire_error *why)
{
    a->batch->end = BULK_FAILED;
    free(a->batch->why);
    a->batch->why = strdup(why->text);
    end(a);
}

static void write_done(struct bulk_job *job)
{
    struct active *a = active_of(job);
    a->busy = false;
    if (a->status == QUIRE_OK) {
        if (!a->bulk->stopping)
            end(a);
        return;
    }
    log_failure(a, "its results cannot be written", &a->err);
    a->retry_ms = quire_now_ms() + RETRY_MS;
}

/* Every line has a result. */
static void on_run_end(void *context)
{
    struct active *a = context;
    struct bulk_batch *b = a->batch;
    bulk_run_free(a->run);
    a->run = NULL;
    bulk_results_count(a->results, &b->counts);
    if (b->state != BULK_FINALIZING) {
        b->end = b->state == BULK_CANCELLING ? BULK_STOPPED : a->has_expired ? BULK_TIMED_OUT : BULK_COMPLETED;
        bulk_new_id(BULK_FILE_ID, b->output);
        bulk_new_id(BULK_FILE_ID, b->errors);
        enter(a, BULK_FINALIZING);
        save(a);
    }
    a->phase = ACTIVE_WRITING;
    active_do(a, BULK_LONG, active_write_work, write_done);
    schedule(a->bulk);
}

/* ---- running -------------------------------------------------------------------------------- */

static uint32_t concurrency_of(const struct bulk *b, const char *tenant)
{
    const struct tenant *t = tenants_named(b->tenants, tenant);
    return t && t->batch_concurrency ? t->batch_concurrency : b->settings->concurrency;
}

/* Its lines end without a result of their own, if that is due. */
static void end_early(struct active *a)
{
    if (!a->run || a->batch->state == BULK_FINALIZING)
        return;
    if (a->batch->state == BULK_CANCELLING)
        bulk_run_end(a->run, BULK_CANCELLED);
    else if (a->has_expired)
        bulk_run_end(a->run, BULK_EXPIRED);
}

static bool must_end(const struct active *a)
{
    return a->batch->state == BULK_CANCELLING || a->batch->state == BULK_FINALIZING || a->has_expired;
}

static int begin(struct active *a, struct quire_error *err)
{
    struct bulk *b = a->bulk;
    const struct bulk_run_options o = {
        .base = b->base,
        .remote = b->remote,
        .socket = b->socket,
        .headers = (const char *const *)a->headers,
        .n_headers = a->n_headers,
        .dialect = a->batch->dialect,
        .id = a->batch->id,
        .input = a->input,
        .results = a->results,
        .max_concurrent = concurrency_of(b, a->batch->tenant),
        .per_minute = b->settings->per_minute,
        .ordered = true,
        .on_end = on_run_end,
        .context = a,
    };
    bulk_results_count(a->results, &a->at_open);
    int status = bulk_run_begin(&o, &a->run, err);
    if (status != QUIRE_OK)
        return status;
    quire_log(QUIRE_LOG_INFO, "batch", "%s of %s: %u of %u lines are to run", a->batch->id, a->batch->tenant,
              a->at_open.n_lines - a->at_open.n_done, a->at_open.n_lines);
    end_early(a);
    return QUIRE_OK;
}

static void open_done(struct bulk_job *job)
{
    struct active *a = active_of(job);
    a->busy = false;
    if (a->bulk->stopping)
        return;
    if (a->status == QUIRE_OK) {
        a->phase = ACTIVE_RUNNING;
        a->status = begin(a, &a->err);
    }
    if (a->status == QUIRE_OK) {
        schedule(a->bulk);
    } else if (a->status == QUIRE_INVALID || ++a->n_tries >= MAX_TRIES) {
        fail(a, &a->err);
    } else {
        log_failure(a, "its results cannot be opened", &a->err);
        bulk_results_close(a->results);
        a->results = NULL;
        a->phase = ACTIVE_WAITING;
        a->retry_ms = quire_now_ms() + RETRY_MS;
    }
}

static uint32_t n_running(const struct bulk *b, const char *tenant)
{
    const struct active *a;
    uint32_t n = 0;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        n += (a->phase == ACTIVE_OPENING || a->phase == ACTIVE_RUNNING) && strcmp(a->batch->tenant, tenant) == 0;
    }
    return n;
}

/* The batches of a tenant share its concurrency. */
static void share(struct bulk *b, const struct active *first)
{
    const char *tenant = first->batch->tenant;
    const uint32_t all = concurrency_of(b, tenant), n = n_running(b, tenant);
    struct active *a;
    uint32_t i = 0;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (!a->run || strcmp(a->batch->tenant, tenant) != 0)
            continue;
        const uint32_t part = all / n + (i++ < all % n);
        bulk_run_limit(a->run, a->lacks_space ? 0 : part > 0 ? part : 1);
    }
}

/* Batches of its tenant. */
static uint32_t most_running(const struct active *a)
{
    const uint32_t all = concurrency_of(a->bulk, a->batch->tenant);
    return all < MAX_RUNNING ? all : MAX_RUNNING;
}

/* One input of a tenant is checked at a time: a thousand large ones would keep the others' from the thread. */
static void check_next(struct bulk *b, uint64_t now_ms)
{
    struct active *a, *other;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        bool waits = a->phase == ACTIVE_CHECKING && !a->busy && now_ms >= a->retry_ms;
        for (other = TAILQ_FIRST(&b->actives); waits && other; other = TAILQ_NEXT(other, link))
            waits = other->phase != ACTIVE_CHECKING || !other->busy ||
                    strcmp(other->batch->tenant, a->batch->tenant) != 0;
        if (waits)
            active_do(a, BULK_LONG, active_check_work, check_done);
    }
}

/* Begins what may run now. */
static void schedule(struct bulk *b)
{
    const uint64_t now_ms = quire_now_ms();
    struct active *a;
    if (b->stopping || !b->socket)
        return;
    check_next(b, now_ms);
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (a->phase != ACTIVE_WAITING || a->busy || now_ms < a->retry_ms ||
            (!must_end(a) && n_running(b, a->batch->tenant) >= most_running(a)))
            continue;
        a->phase = ACTIVE_OPENING;
        active_do(a, BULK_LONG, active_open_work, open_done);
    }
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (a->run)
            share(b, a);
    }
}

/* ---- the beginning -------------------------------------------------------------------------- */

/* A thousand waiting batches of a million lines would have 36 GB: it opens again when its turn comes. */
static void close_if_waiting(struct active *a)
{
    if (a->phase != ACTIVE_WAITING)
        return;
    bulk_input_close(a->input);
    a->input = NULL;
}

static void check_done(struct bulk_job *job)
{
    struct active *a = active_of(job);
    a->busy = false;
    if (a->bulk->stopping)
        return;
    if (a->status == QUIRE_INVALID || (a->status != QUIRE_OK && ++a->n_tries >= MAX_TRIES)) {
        fail(a, &a->err);
        schedule(a->bulk);
        return;
    }
    if (a->status != QUIRE_OK) {
        log_failure(a, "its input cannot be read", &a->err);
        a->retry_ms = quire_now_ms() + RETRY_MS;
        schedule(a->bulk);
        return;
    }
    a->n_tries = 0;
    a->phase = ACTIVE_WAITING;
    a->batch->counts.n_lines = bulk_input_lines(a->input);
    if (a->batch->state == BULK_VALIDATING) {
        enter(a, BULK_IN_PROGRESS);
        save(a);
    }
    schedule(a->bulk);
    close_if_waiting(a);
}

static bool add_header(struct active *a, const char *name, const char *value)
{
    if (asprintf(&a->headers[a->n_headers], "%s: %s", name, value) < 0)
        return false;
    a->n_headers++;
    return true;
}

int runner_add(struct bulk *b, struct bulk_batch *batch, struct quire_error *err)
{
    struct active *a = calloc(1, sizeof *a);
    if (a)
        a->batch = malloc(sizeof *a->batch);
    if (!a || !a->batch) {
        free(a);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    a->bulk = b;
    *a->batch = *batch;
    batch->metadata = batch->why = NULL;
    TAILQ_INSERT_TAIL(&b->actives, a, link);
    if (!add_header(a, INSIDE_TENANT_HEADER, a->batch->tenant) ||
        (a->batch->account[0] && !add_header(a, INSIDE_ACCOUNT_HEADER, a->batch->account))) {
        free_active(a);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    schedule(b);
    return QUIRE_OK;
}

/* ---- for the routes ------------------------------------------------------------------------- */

void runner_overlay(const struct bulk *b, struct bulk_batch *batch)
{
    const struct active *a = find(b, batch->id);
    if (!a)
        return;
    batch->state = a->batch->state;
    batch->end = a->batch->end;
    batch->counts = a->batch->counts;
    memcpy(batch->at, a->batch->at, sizeof batch->at);
    if (a->results && a->phase == ACTIVE_RUNNING)
        bulk_results_count(a->results, &batch->counts);
    if (a->phase == ACTIVE_ENDING) /* not before it is saved */
        batch->at[a->batch->end] = 0;
}

bool runner_cancel(struct bulk *b, const char *tenant, const char *id)
{
    struct active *a = find(b, id);
    if (!a || strcmp(a->batch->tenant, tenant) != 0)
        return false;
    if (a->batch->state == BULK_VALIDATING || a->batch->state == BULK_IN_PROGRESS) {
        enter(a, BULK_CANCELLING);
        save(a);
        end_early(a);
        schedule(b);
    }
    return true;
}

uint32_t runner_n_active(const struct bulk *b, const char *tenant)
{
    const struct active *a;
    uint32_t n = 0;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        n += strcmp(a->batch->tenant, tenant) == 0;
    }
    return n;
}

void runner_count(const struct bulk *b, uint64_t out[BULK_OUTCOMES], uint64_t n_batches[BULK_N_STATES])
{
    const struct active *a;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        struct bulk_counts now = a->batch->counts;
        n_batches[a->batch->state]++;
        if (a->results && a->phase == ACTIVE_RUNNING)
            bulk_results_count(a->results, &now);
        for (int i = 0; i < BULK_OUTCOMES && a->results; i++)
            out[i] += now.n[i] - a->at_open.n[i];
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void retry(struct active *a)
{
    switch (a->phase) {
    case ACTIVE_WRITING: active_do(a, BULK_LONG, active_write_work, write_done); break;
    case ACTIVE_ENDING: end(a); break;
    case ACTIVE_CHECKING:
    case ACTIVE_WAITING:
    case ACTIVE_OPENING:
    case ACTIVE_RUNNING: break;
    }
}

void runner_tick(struct bulk *b)
{
    const int64_t now_s = (int64_t)time(NULL);
    const uint64_t now_ms = quire_now_ms();
    struct active *a;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (!a->has_expired && now_s >= bulk_batch_expires(a->batch)) {
            a->has_expired = true;
            end_early(a);
        }
        if (a->unsaved)
            save(a);
        if (a->retry_ms > 0 && now_ms >= a->retry_ms && !a->busy) {
            a->retry_ms = 0;
            retry(a);
        }
    }
    space_look(b);
    schedule(b);
}

uint32_t runner_stop(struct bulk *b)
{
    struct active *a;
    struct quire_error err;
    uint32_t n = 0;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        bulk_run_free(a->run);
        a->run = NULL;
        if (a->results && !a->busy && bulk_results_flush(a->results, &err) != QUIRE_OK)
            quire_log(QUIRE_LOG_ERROR, "batch", "%s: the last results are lost and will run again: %s", a->batch->id,
                      err.text);
        n++;
    }
    return n;
}

void runner_free(struct bulk *b)
{
    struct active *a;
    while ((a = TAILQ_FIRST(&b->actives))) {
        bulk_run_free(a->run);
        bulk_results_close(a->results);
        bulk_input_close(a->input);
        free_active(a);
    }
}
