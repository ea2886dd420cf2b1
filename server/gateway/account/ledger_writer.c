#include "server/gateway/account/ledger_writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/gateway/account/usage_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define RETRY_MS 1000
#define LOG_NS (60000 * NS_PER_MS) /* between two lines about failures */

struct jobs {
    struct ledger_job *first, **end;
};

struct ledger_writer {
    struct ledger_db db; /* the thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members up to `closing`; held for a few instructions only */
    pthread_cond_t work;
    struct usage_table added;
    struct jobs asked, answered;
    bool closing;
    struct usage_table unsaved; /* the thread's */
    uint64_t logged_ns;         /* the thread's */
    int wake;                   /* eventfd: jobs are answered */
    struct event *event;
};

static void append(struct jobs *to, struct ledger_job *job)
{
    job->next = NULL;
    *to->end = job;
    to->end = &job->next;
}

/* All of a list. */
static struct ledger_job *take_all(struct jobs *from)
{
    struct ledger_job *first = from->first;
    from->first = NULL;
    from->end = &from->first;
    return first;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int write_all(struct ledger_db *db, const struct usage_table *t)
{
    int code = ledger_db_begin(db);
    for (size_t i = 0; i < USAGE_BUCKETS; i++)
        for (const struct usage_entry *e = t->buckets[i]; e && code == SQLITE_OK; e = e->next)
            code = ledger_db_add_usage(db, &e->row);
    return ledger_db_end(db, code);
}

static void save(struct ledger_writer *w)
{
    if (w->unsaved.n == 0)
        return;
    const int code = write_all(&w->db, &w->unsaved);
    const uint64_t now_ns = quire_now_ns();
    if (code == SQLITE_OK) {
        usage_table_free(&w->unsaved);
        if (w->logged_ns)
            quire_log(QUIRE_LOG_INFO, "gateway", "--ledger: writing works again");
        w->logged_ns = 0;
    } else if (w->logged_ns == 0 || now_ns - w->logged_ns >= LOG_NS) {
        quire_log(QUIRE_LOG_ERROR, "gateway", "--ledger: usage cannot be written and waits in memory: %s",
                  sqlite3_errstr(code));
        w->logged_ns = now_ns;
    }
}

static void run_jobs(struct ledger_writer *w, struct ledger_job *first)
{
    const uint64_t one = 1;
    for (struct ledger_job *job = first, *next; job; job = next) {
        next = job->next;
        job->code = job->work(&w->db, job);
        pthread_mutex_lock(&w->mutex);
        append(&w->answered, job);
        pthread_mutex_unlock(&w->mutex);
    }
    const ssize_t n = first ? write(w->wake, &one, sizeof one) : 0;
    (void)n; /* the eventfd is full: the loop is already notified */
}

/* Waits for a time, for a job, or for the end. The mutex is held. */
static void wait_ms(struct ledger_writer *w, uint64_t ms)
{
    const struct timespec until = quire_until_ns(quire_now_ns() + ms * NS_PER_MS);
    while (!w->closing && !w->asked.first && pthread_cond_timedwait(&w->work, &w->mutex, &until) == 0) {
    }
}

static void *writer(void *context)
{
    struct ledger_writer *w = context;
    bool closing = false;
    while (!closing) {
        pthread_mutex_lock(&w->mutex);
        while (w->added.n == 0 && w->unsaved.n == 0 && !w->asked.first && !w->closing)
            pthread_cond_wait(&w->work, &w->mutex);
        wait_ms(w, w->unsaved.n ? RETRY_MS : WRITER_DELAY_MS);
        struct usage_table added = w->added;
        struct ledger_job *jobs = take_all(&w->asked);
        w->added = (struct usage_table){0};
        closing = w->closing;
        pthread_mutex_unlock(&w->mutex);
        usage_table_move(&added, &w->unsaved);
        save(w);
        run_jobs(w, jobs);
    }
    return NULL;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void call_done(struct ledger_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    struct ledger_job *first = take_all(&w->answered);
    pthread_mutex_unlock(&w->mutex);
    for (struct ledger_job *job = first, *next; job; job = next) {
        next = job->next;
        job->done(job, job->code);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    uint64_t n;
    const ssize_t got = read(fd, &n, sizeof n);
    (void)what, (void)got;
    call_done(context);
}

bool ledger_writer_add(struct ledger_writer *w, const struct ledger_usage_row *row)
{
    pthread_mutex_lock(&w->mutex);
    const bool is_first = w->added.n == 0, ok = usage_table_add(&w->added, row);
    pthread_mutex_unlock(&w->mutex);
    if (is_first)
        pthread_cond_signal(&w->work);
    return ok;
}

void ledger_writer_run(struct ledger_writer *w, struct ledger_job *job)
{
    pthread_mutex_lock(&w->mutex);
    append(&w->asked, job);
    pthread_mutex_unlock(&w->mutex);
    pthread_cond_signal(&w->work);
}

static void destroy(struct ledger_writer *w)
{
    if (w->event)
        event_free(w->event);
    if (w->wake >= 0)
        close(w->wake);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->mutex);
    usage_table_free(&w->added);
    usage_table_free(&w->unsaved);
    ledger_db_close(&w->db);
    free(w);
}

int ledger_writer_start(struct event_base *base, struct ledger_db *db, struct ledger_writer **out,
                        struct quire_error *err)
{
    struct ledger_writer *w = calloc(1, sizeof *w);
    pthread_condattr_t clock;
    *out = NULL;
    if (!w) {
        ledger_db_close(db);
        return quire_fail(err, QUIRE_NO_MEMORY, "--ledger: out of memory");
    }
    w->db = *db;
    *db = (struct ledger_db){0};
    w->asked.end = &w->asked.first;
    w->answered.end = &w->answered.first;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, &clock);
    pthread_condattr_destroy(&clock);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->event = w->wake >= 0 ? event_new(base, w->wake, EV_READ | EV_PERSIST, on_wake, w) : NULL;
    if (!w->event || event_add(w->event, NULL) != 0 || pthread_create(&w->thread, NULL, writer, w) != 0) {
        destroy(w);
        return quire_fail(err, QUIRE_NO_MEMORY, "--ledger: its thread cannot be started");
    }
    *out = w;
    return QUIRE_OK;
}

void ledger_writer_stop(struct ledger_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->closing = true;
    pthread_mutex_unlock(&w->mutex);
    pthread_cond_signal(&w->work);
    pthread_join(w->thread, NULL);
    if (w->unsaved.n)
        quire_log(QUIRE_LOG_ERROR, "gateway", "--ledger: the last usage could not be written and is lost");
    call_done(w);
    destroy(w);
}
