#include "server/bulk/run/results.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/bulk/run/results_db.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NS_PER_MS UINT64_C(1000000)
#define WRITE_EVERY_MS 100
#define RETRY_MS 1000
#define LOG_NS (60000 * NS_PER_MS) /* between two lines about failures */
#define ROW_BYTES 32 /* on the disk, besides its json */
#define MAX_PENDING_BYTES ((size_t)64 << 20)

struct pending {
    struct pending *next;
    struct results_row row;
    char json[];
};

struct list {
    struct pending *first, **end;
};

struct bulk_results {
    struct results_db db; /* the thread's, once it runs */
    char *path;
    uint32_t n_lines;
    uint8_t *has; /* a bit for each line; the owner's, as counts */
    struct bulk_counts counts;
    uint64_t n_bytes; /* the owner's, too */
    pthread_t thread;
    bool is_running;
    pthread_mutex_t mutex; /* guards the members up to `closing` */
    pthread_cond_t work, written;
    struct list added;
    size_t pending_bytes;          /* added, or not written yet */
    uint64_t n_added, n_written;   /* rows */
    uint64_t n_failures;           /* transactions */
    int failure;                   /* SQLite's code of the last one */
    bool is_urgent, closing;
    uint64_t logged_ns; /* the thread's */
};

static void append(struct list *to, struct pending *p)
{
    p->next = NULL;
    *to->end = p;
    to->end = &p->next;
}

static void move(struct list *from, struct list *to)
{
    if (!from->first)
        return;
    *to->end = from->first;
    to->end = from->end;
    from->first = NULL;
    from->end = &from->first;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int write_all(struct results_db *db, const struct list *rows)
{
    int code = results_db_begin(db);
    for (const struct pending *p = rows->first; p && code == SQLITE_OK; p = p->next)
        code = results_db_put(db, &p->row);
    return results_db_end(db, code);
}

static size_t free_rows(struct list *rows, uint64_t *n)
{
    size_t bytes = 0;
    *n = 0;
    for (struct pending *p = rows->first, *next; p; p = next) {
        next = p->next;
        bytes += sizeof *p + p->row.n_json;
        ++*n;
        free(p);
    }
    rows->first = NULL;
    rows->end = &rows->first;
    return bytes;
}

static void log_failure(struct bulk_results *r, int code)
{
    const uint64_t now = quire_now_ns();
    if (r->logged_ns && now - r->logged_ns < LOG_NS)
        return;
    r->logged_ns = now;
    quire_log(QUIRE_LOG_WARN, "bulk", "%s: results cannot be written and wait in memory: %s", r->path,
              sqlite3_errstr(code));
}

/* Returns whether the disk took the rows. */
static bool save(struct bulk_results *r, struct list *rows)
{
    uint64_t n = 0;
    const int code = write_all(&r->db, rows);
    const size_t bytes = code == SQLITE_OK ? free_rows(rows, &n) : 0;
    if (code != SQLITE_OK)
        log_failure(r, code);
    pthread_mutex_lock(&r->mutex);
    r->pending_bytes -= bytes;
    r->n_written += n;
    r->n_failures += code != SQLITE_OK;
    r->failure = code;
    pthread_cond_broadcast(&r->written);
    pthread_mutex_unlock(&r->mutex);
    return code == SQLITE_OK;
}

/* Sleeps until the moment, or until flush() or close() needs the thread at once. The mutex is held. */
static void sleep_until(struct bulk_results *r, uint64_t moment_ns)
{
    const struct timespec until = quire_until_ns(moment_ns);
    while (!r->is_urgent && !r->closing && pthread_cond_timedwait(&r->work, &r->mutex, &until) == 0) {
    }
}

static void *writer(void *context)
{
    struct bulk_results *r = context;
    struct list rows = {.end = &rows.first};
    bool fails = false, closing = false;
    while (!closing) {
        pthread_mutex_lock(&r->mutex);
        while (!r->closing && !r->is_urgent && !r->added.first && !rows.first)
            pthread_cond_wait(&r->work, &r->mutex);
        sleep_until(r, quire_now_ns() + (fails ? RETRY_MS : WRITE_EVERY_MS) * NS_PER_MS);
        move(&r->added, &rows);
        r->is_urgent = false;
        closing = r->closing;
        pthread_mutex_unlock(&r->mutex);
        if (rows.first)
            fails = !save(r, &rows);
    }
    uint64_t n;
    free_rows(&rows, &n);
    if (n)
        quire_log(QUIRE_LOG_ERROR, "bulk", "%s: the last %llu results could not be written; their lines run again",
                  r->path, (unsigned long long)n);
    return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void note(struct bulk_results *r, uint32_t line, enum bulk_outcome outcome, const struct bulk_tokens *tokens)
{
    r->has[line / 8] |= (uint8_t)(1u << line % 8);
    r->counts.n_done++;
    r->counts.n[outcome]++;
    r->counts.input_tokens += tokens->input;
    r->counts.cached_tokens += tokens->cached;
    r->counts.output_tokens += tokens->output;
    r->counts.cost += tokens->cost;
}

static void found(void *context, const struct results_row *row)
{
    note(context, row->line, row->outcome, &row->tokens);
}

static int start(struct bulk_results *r, struct quire_error *err)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->work, &clock);
    pthread_cond_init(&r->written, NULL);
    pthread_condattr_destroy(&clock);
    r->is_running = pthread_create(&r->thread, NULL, writer, r) == 0;
    if (r->is_running)
        return QUIRE_OK;
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->written);
    pthread_mutex_destroy(&r->mutex);
    return quire_fail(err, QUIRE_NO_MEMORY, "%s: the thread of the results cannot be started", r->path);
}

int bulk_results_open(const char *path, uint64_t digest, uint32_t n_lines, struct bulk_results **out,
                      struct quire_error *err)
{
    struct bulk_results *r = calloc(1, sizeof *r);
    struct stat st;
    *out = NULL;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->db.lock = -1;
    r->n_lines = r->counts.n_lines = n_lines;
    r->added.end = &r->added.first;
    r->path = strdup(path);
    r->has = calloc(n_lines / 8 + 1, 1);
    int status = r->path && r->has ? results_db_open(&r->db, path, digest, n_lines, err)
                                   : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = results_db_load(&r->db, n_lines, found, r, err);
    r->n_bytes = status == QUIRE_OK && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (status == QUIRE_OK)
        status = start(r, err);
    if (status != QUIRE_OK) {
        bulk_results_close(r);
        return status;
    }
    *out = r;
    return QUIRE_OK;
}

void bulk_results_close(struct bulk_results *r)
{
    if (!r)
        return;
    if (r->is_running) {
        pthread_mutex_lock(&r->mutex);
        r->closing = true;
        pthread_mutex_unlock(&r->mutex);
        pthread_cond_signal(&r->work);
        pthread_join(r->thread, NULL);
        pthread_cond_destroy(&r->work);
        pthread_cond_destroy(&r->written);
        pthread_mutex_destroy(&r->mutex);
    }
    results_db_close(&r->db);
    free(r->path);
    free(r->has);
    free(r);
}

/* ---- results -------------------------------------------------------------------------------- */

bool bulk_results_has(const struct bulk_results *r, uint32_t line)
{
    return r->has[line / 8] >> line % 8 & 1;
}

int bulk_results_put(struct bulk_results *r, uint32_t line, enum bulk_outcome outcome, const char *json, size_t n_json,
                     const struct bulk_tokens *tokens, struct quire_error *err)
{
    static const struct bulk_tokens none;
    if (bulk_results_has(r, line))
        return QUIRE_OK;
    struct pending *p = malloc(sizeof *p + n_json);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    memcpy(p->json, json, n_json);
    p->row = (struct results_row){line, outcome, tokens ? *tokens : none, p->json, n_json};
    note(r, line, outcome, &p->row.tokens);
    r->n_bytes += n_json + ROW_BYTES;
    pthread_mutex_lock(&r->mutex);
    const bool is_first = !r->added.first;
    append(&r->added, p);
    r->pending_bytes += sizeof *p + n_json;
    r->n_added++;
    pthread_mutex_unlock(&r->mutex);
    if (is_first)
        pthread_cond_signal(&r->work);
    return QUIRE_OK;
}

bool bulk_results_is_full(struct bulk_results *r)
{
    pthread_mutex_lock(&r->mutex);
    const bool is_full = r->pending_bytes > MAX_PENDING_BYTES;
    pthread_mutex_unlock(&r->mutex);
    return is_full;
}

uint64_t bulk_results_bytes(const struct bulk_results *r)
{
    return r->n_bytes;
}

void bulk_results_count(const struct bulk_results *r, struct bulk_counts *out)
{
    *out = r->counts;
}

int bulk_results_flush(struct bulk_results *r, struct quire_error *err)
{
    pthread_mutex_lock(&r->mutex);
    const uint64_t n = r->n_added, n_failures = r->n_failures;
    while (r->n_written < n && r->n_failures == n_failures) {
        r->is_urgent = true;
        pthread_cond_signal(&r->work);
        pthread_cond_wait(&r->written, &r->mutex);
    }
    const bool is_written = r->n_written >= n;
    const int failure = r->failure;
    pthread_mutex_unlock(&r->mutex);
    return is_written
               ? QUIRE_OK
               : quire_fail(err, QUIRE_IO, "%s: results cannot be written: %s", r->path, sqlite3_errstr(failure));
}

int bulk_results_write(struct bulk_results *r, unsigned outcomes, FILE *to, struct quire_error *err)
{
    return results_db_write(r->path, outcomes, to, err);
}
