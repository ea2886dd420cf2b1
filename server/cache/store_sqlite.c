/* A SQLite file as a store: the loop's side, and the one thread that reads and writes the file. Lookups go first; what is
 * to be written goes in batches, each a transaction. */
#include "server/cache/sqlite_file.h"
#include "server/cache/store.h"

#include "base/clock.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define LOOKUP_MS 50 /* a disk that takes longer is slower than many an engine */
#define MAX_LOOKUPS 1024u /* on their way */
#define MAX_WAITING_BYTES ((size_t)64 << 20)
#define MAX_WAITING_JOBS 4096u
#define BATCH_JOBS 64u /* of a transaction, which lookups wait for */
#define BATCH_BYTES ((size_t)1 << 20)
#define HITS_WAIT_MS 1000 /* hits alone wake nobody */
#define NS_PER_MS UINT64_C(1000000)

struct store_lookup {
    struct store_lookup *next;
    struct sqlite_store *store;
    struct key256 key;
    struct event timer;
    store_answer answer; /* the loop's: NULL once it was given, cancelled or late */
    void *context;
    int code; /* the thread's, until it is done */
    struct sqlite_found found;
};

enum job_kind { JOB_PUT, JOB_REMOVE, JOB_HIT, JOB_CLEAR };
struct job {
    struct job *next;
    enum job_kind kind;
    struct sqlite_put put;
    void (*done)(void *context, bool ok, uint64_t n_removed); /* of a clear */
    void *context;
    bool ok;
    uint64_t n_removed;
    uint8_t bytes[];
};

struct jobs {
    struct job *first, **end;
    size_t n, n_bytes;
};

struct sqlite_store {
    struct answer_store base;
    struct sqlite_file file; /* the thread's */
    uint64_t counted_ns, count_took_ns;
    pthread_t thread;
    int wake; /* eventfd: something is done */
    struct event *on_done;
    uint32_t n_lookups; /* the loop's: on their way */

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    struct store_lookup *asked, **asked_end, *answered;
    struct jobs jobs;
    uint32_t n_hits_waiting;
    struct job *cleared;
    bool closing;
    uint64_t give_up_ns;
    struct store_stats stats;
};

static int64_t wall_s(void)
{
    return (int64_t)(quire_wall_ns() / 1000000000u);
}

static void tell_loop(struct sqlite_store *s)
{
    const uint64_t one = 1;
    ssize_t n = write(s->wake, &one, sizeof one);
    (void)n; /* full: it is told already */
}

/* ---- the thread ------------------------------------------------------------------------------- */

static void look_up(struct sqlite_store *s, struct store_lookup *l)
{
    l->code = sqlite_file_get(&s->file, l->key, wall_s(), &l->found);
    const bool failed = l->code != SQLITE_ROW && l->code != SQLITE_DONE;
    pthread_mutex_lock(&s->mutex);
    if (failed)
        snprintf(s->stats.trouble, sizeof s->stats.trouble, "reading: %s", sqlite3_errstr(l->code));
    l->next = s->answered;
    s->answered = l;
    pthread_mutex_unlock(&s->mutex);
    tell_loop(s);
}

static int do_job(struct sqlite_store *s, struct job *j, uint64_t *n_evicted)
{
    const int64_t now_s = wall_s();
    switch (j->kind) {
    case JOB_PUT: return sqlite_file_put(&s->file, &j->put, now_s, n_evicted);
    case JOB_REMOVE: return sqlite_file_remove(&s->file, j->put.key);
    case JOB_HIT: return sqlite_file_hit(&s->file, j->put.key, now_s);
    case JOB_CLEAR: return sqlite_file_clear(&s->file, &j->n_removed);
    }
    return SQLITE_INTERNAL;
}

/* One transaction. */
static int write_batch(struct sqlite_store *s, struct job *batch, uint64_t *n_evicted)
{
    int code = sqlite_file_begin(&s->file);
    for (struct job *j = batch; j && code == SQLITE_OK; j = j->next) {
        code = do_job(s, j, n_evicted);
        if (code == SQLITE_TOOBIG) { /* larger than the file may be: this one alone */
            j->n_removed = 1;
            code = SQLITE_OK;
        }
    }
    if (code == SQLITE_OK)
        code = sqlite_file_commit(&s->file);
    if (code != SQLITE_OK)
        sqlite_file_rollback(&s->file);
    return code;
}

/* At most a hundredth of the time goes into counting. */
static void count(struct sqlite_store *s, bool anyway)
{
    const uint64_t begun_ns = quire_now_ns();
    uint64_t n_entries = 0, n_expired = 0, n_bytes = 0;
    if (!anyway && begun_ns - s->counted_ns < 100 * s->count_took_ns)
        return;
    if (sqlite_file_count(&s->file, wall_s(), &n_entries, &n_expired, &n_bytes) != SQLITE_OK)
        return;
    s->counted_ns = quire_now_ns();
    s->count_took_ns = s->counted_ns - begun_ns;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_entries = n_entries;
    s->stats.n_expired = n_expired;
    s->stats.n_bytes = n_bytes;
    pthread_mutex_unlock(&s->mutex);
}

static void do_batch(struct sqlite_store *s, struct job *batch)
{
    uint64_t n_evicted = 0;
    const int code = write_batch(s, batch, &n_evicted);
    bool any_cleared = false;
    if (code == SQLITE_OK)
        count(s, false);
    pthread_mutex_lock(&s->mutex);
    if (code != SQLITE_OK)
        snprintf(s->stats.trouble, sizeof s->stats.trouble, "writing: %s", sqlite3_errstr(code));
    else
        s->stats.n_evicted += n_evicted;
    for (struct job *j = batch, *next; j; j = next) {
        next = j->next;
        if (j->kind == JOB_PUT) {
            s->stats.n_waiting--;
            s->stats.n_put_failed += code != SQLITE_OK || j->n_removed;
        }
        if (j->kind == JOB_CLEAR) {
            j->ok = code == SQLITE_OK;
            j->next = s->cleared;
            s->cleared = j;
            any_cleared = true;
        } else {
            free(j);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    if (any_cleared)
        tell_loop(s);
}

/* Off the queue's front. The mutex is held. */
static struct job *take_batch(struct sqlite_store *s)
{
    struct job *batch = s->jobs.first, **end = &batch;
    size_t n_bytes = 0;
    for (uint32_t n = 0; *end && n < BATCH_JOBS && n_bytes < BATCH_BYTES; n++) {
        n_bytes += (*end)->put.n;
        s->n_hits_waiting -= (*end)->kind == JOB_HIT;
        s->jobs.n--;
        end = &(*end)->next;
    }
    s->jobs.first = *end;
    if (!s->jobs.first)
        s->jobs.end = &s->jobs.first;
    s->jobs.n_bytes -= n_bytes;
    *end = NULL;
    return batch;
}

/* Until there is something to do. The mutex is held. */
static void wait_for_work(struct sqlite_store *s)
{
    const struct timespec due = quire_until_ns(quire_now_ns() + HITS_WAIT_MS * NS_PER_MS);
    while (!s->asked && !s->closing && s->jobs.n == s->n_hits_waiting) {
        if (s->jobs.n == 0)
            pthread_cond_wait(&s->changed, &s->mutex);
        else if (pthread_cond_timedwait(&s->changed, &s->mutex, &due) == ETIMEDOUT)
            return;
    }
}

static void *keeper(void *context)
{
    struct sqlite_store *s = context;
    count(s, true);
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        wait_for_work(s);
        if (s->closing && (s->jobs.n == 0 || quire_now_ns() > s->give_up_ns))
            break;
        struct store_lookup *l = s->asked;
        if (l) {
            s->asked = l->next;
            if (!s->asked)
                s->asked_end = &s->asked;
        }
        struct job *batch = l ? NULL : take_batch(s);
        pthread_mutex_unlock(&s->mutex);
        if (l)
            look_up(s, l);
        else if (batch)
            do_batch(s, batch);
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- the loop's side -------------------------------------------------------------------------- */

static struct sqlite_store *of(const struct answer_store *s)
{
    return (struct sqlite_store *)s;
}

static void free_lookup(struct store_lookup *l)
{
    event_del(&l->timer);
    free(l->found.bytes);
    free(l);
}

static void answer(struct store_lookup *l, enum store_found found)
{
    struct sqlite_store *s = l->store;
    store_answer to = l->answer;
    if (!to)
        return;
    l->answer = NULL;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_hits += found == STORE_FOUND;
    s->stats.n_misses += found == STORE_MISS;
    s->stats.n_away += found == STORE_AWAY;
    pthread_mutex_unlock(&s->mutex);
    if (found == STORE_FOUND)
        to(l->context, found, l->found.bytes, l->found.n, l->found.created_s, l->found.expires_s, l->found.hits);
    else
        to(l->context, found, NULL, 0, 0, 0, 0);
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    answer(context, STORE_AWAY); /* it is freed when the thread is done with it */
}

static void on_done(evutil_socket_t fd, short what, void *context)
{
    struct sqlite_store *s = context;
    uint64_t n;
    (void)what;
    if (read(fd, &n, sizeof n) < 0)
        return;
    pthread_mutex_lock(&s->mutex);
    struct store_lookup *l = s->answered;
    struct job *j = s->cleared;
    s->answered = NULL;
    s->cleared = NULL;
    pthread_mutex_unlock(&s->mutex);
    for (struct store_lookup *next; l; l = next) {
        next = l->next;
        s->n_lookups--;
        answer(l, l->code == SQLITE_ROW ? STORE_FOUND : l->code == SQLITE_DONE ? STORE_MISS : STORE_AWAY);
        free_lookup(l);
    }
    for (struct job *next; j; j = next) {
        next = j->next;
        j->done(j->context, j->ok, j->n_removed);
        free(j);
    }
}

static struct store_lookup *sqlite_get(struct answer_store *base, struct key256 key, store_answer to, void *context)
{
    struct sqlite_store *s = of(base);
    struct store_lookup *l = s->n_lookups < MAX_LOOKUPS ? calloc(1, sizeof *l) : NULL;
    pthread_mutex_lock(&s->mutex);
    s->stats.n_lookups++;
    if (!l) {
        s->stats.n_away++;
        pthread_mutex_unlock(&s->mutex);
        return NULL;
    }
    s->n_lookups++;
    l->store = s;
    l->key = key;
    l->answer = to;
    l->context = context;
    const struct timeval soon = {.tv_usec = LOOKUP_MS * 1000};
    evtimer_assign(&l->timer, event_get_base(s->on_done), on_late, l);
    evtimer_add(&l->timer, &soon);
    *s->asked_end = l;
    s->asked_end = &l->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    return l;
}

static void sqlite_cancel(struct answer_store *base, struct store_lookup *l)
{
    (void)base;
    l->answer = NULL;
    event_del(&l->timer);
}

/* False: there is no room, and it is freed. */
static bool add_job(struct sqlite_store *s, struct job *j)
{
    pthread_mutex_lock(&s->mutex);
    const bool full = j->kind == JOB_HIT ? s->jobs.n >= MAX_WAITING_JOBS / 2
                      : j->kind == JOB_PUT
                          ? s->jobs.n >= MAX_WAITING_JOBS || s->jobs.n_bytes + j->put.n > MAX_WAITING_BYTES
                          : false;
    if (!full) {
        *s->jobs.end = j;
        s->jobs.end = &j->next;
        s->jobs.n++;
        s->jobs.n_bytes += j->put.n;
        s->n_hits_waiting += j->kind == JOB_HIT;
        s->stats.n_waiting += j->kind == JOB_PUT;
        if (j->kind != JOB_HIT || s->jobs.n == 1)
            pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    if (full)
        free(j);
    return !full;
}

static struct job *new_job(enum job_kind kind, struct key256 key, size_t n)
{
    struct job *j = calloc(1, sizeof *j + n);
    if (j) {
        j->kind = kind;
        j->put.key = key;
    }
    return j;
}

static void sqlite_put(struct answer_store *base, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                       uint32_t ttl_s, uint32_t n_tokens, struct key256 domain)
{
    struct sqlite_store *s = of(base);
    struct job *j = n > 0 && n <= SQLITE_FILE_MAX_ANSWER ? new_job(JOB_PUT, key, n) : NULL;
    bool added = false;
    if (j) {
        memcpy(j->bytes, bytes, n);
        j->put.bytes = j->bytes;
        j->put.n = n;
        j->put.created_s = created_s;
        j->put.expires_s = created_s + ttl_s;
        j->put.n_tokens = n_tokens;
        j->put.domain = domain;
        added = add_job(s, j);
    }
    pthread_mutex_lock(&s->mutex);
    s->stats.n_puts++;
    s->stats.n_put_failed += !added;
    pthread_mutex_unlock(&s->mutex);
}

static void sqlite_remove(struct answer_store *base, struct key256 key)
{
    struct job *j = new_job(JOB_REMOVE, key, 0);
    if (j)
        add_job(of(base), j);
}

static void sqlite_hit(struct answer_store *base, struct key256 key)
{
    struct job *j = new_job(JOB_HIT, key, 0);
    if (j)
        add_job(of(base), j);
}

static void sqlite_clear(struct answer_store *base, void (*done)(void *context, bool ok, uint64_t n_removed),
                         void *context)
{
    struct job *j = new_job(JOB_CLEAR, (struct key256){0}, 0);
    if (!j) {
        done(context, false, 0);
        return;
    }
    j->done = done;
    j->context = context;
    add_job(of(base), j);
}

static void sqlite_stats(const struct answer_store *base, struct store_stats *out)
{
    struct sqlite_store *s = of(base);
    pthread_mutex_lock(&s->mutex);
    *out = s->stats;
    pthread_mutex_unlock(&s->mutex);
}

static void free_store(struct sqlite_store *s)
{
    for (struct store_lookup *l = s->asked, *next; l; l = next)
        next = l->next, free_lookup(l);
    for (struct store_lookup *l = s->answered, *next; l; l = next)
        next = l->next, free_lookup(l);
    for (struct job *j = s->jobs.first, *next; j; j = next)
        next = j->next, free(j);
    for (struct job *j = s->cleared, *next; j; j = next)
        next = j->next, free(j);
    if (s->on_done)
        event_free(s->on_done);
    if (s->wake >= 0)
        close(s->wake);
    sqlite_file_close(&s->file);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static void sqlite_close(struct answer_store *base, uint32_t wait_ms)
{
    struct sqlite_store *s = of(base);
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    s->give_up_ns = quire_now_ns() + wait_ms * NS_PER_MS;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    free_store(s);
}

static const struct answer_store_ops ops = {
    .name = "sqlite",
    .get = sqlite_get,
    .cancel = sqlite_cancel,
    .put = sqlite_put,
    .remove = sqlite_remove,
    .hit = sqlite_hit,
    .clear = sqlite_clear,
    .stats = sqlite_stats,
    .close = sqlite_close,
};

int store_open_sqlite(struct event_base *base, const char *path, struct key256 identity, uint64_t max_bytes,
                      struct answer_store **out, char note[256], struct quire_error *err)
{
    *out = NULL;
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    s->base.ops = &ops;
    s->asked_end = &s->asked;
    s->jobs.end = &s->jobs.first;
    s->stats.connected = true;
    s->file.lock = -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&s->mutex, NULL);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->on_done = s->wake < 0 ? NULL : event_new(base, s->wake, EV_READ | EV_PERSIST, on_done, s);
    int status = s->on_done && event_add(s->on_done, NULL) == 0
                     ? sqlite_file_open(&s->file, path, identity, max_bytes, note, err)
                     : (int)quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && pthread_create(&s->thread, NULL, keeper, s) != 0)
        status = quire_fail(err, QUIRE_INTERNAL, "a thread cannot be started");
    if (status != QUIRE_OK) {
        free_store(s);
        return status;
    }
    *out = &s->base;
    return QUIRE_OK;
}
