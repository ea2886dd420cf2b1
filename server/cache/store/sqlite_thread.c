#include "server/cache/store/sqlite_thread.h"

#include "base/clock.h"
#include "base/log.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BATCH_JOBS 64u /* jobs per transaction, because lookups wait for its end */
#define BATCH_BYTES ((size_t)1 << 20)
#define NS_PER_MS UINT64_C(1000000)
#define HITS_WAIT_NS (UINT64_C(1000) * NS_PER_MS) /* hits alone do not wake the thread for this long */
/* Delay before an unusable file is tried again. It also separates two damaged files that are renamed, so that a disk
 * that corrupts every write produces at most one per minute. */
#define RETRY_NS (UINT64_C(250) * NS_PER_MS)
#define RENEW_NS (UINT64_C(60000) * NS_PER_MS)
#define LOG_NS (60 * UINT64_C(1000000000)) /* between two lines about the same kind of failure */

struct pile { /* the last that came lies first */
    _Atomic(struct item *) first;
};
struct queue {
    struct item *first, **end;
};

/* The thread's report about the file. */
struct file_report {
    bool connected;
    uint64_t n_entries, n_expired, n_bytes, n_reconnects;
    char trouble[160];
};

struct failing {
    int code; /* result of the last operation; SQLITE_OK: it works */
    uint64_t logged_ns; /* 0: never */
    bool is_logged; /* since it worked last */
};

/* The thread's own. */
struct keeper {
    struct sqlite_thread *thread;
    char *path;
    struct key256 identity;
    uint64_t max_bytes;
    struct sqlite_file file;
    struct queue asked, jobs;
    size_t n_hits_waiting, n_jobs_waiting;
    uint64_t hits_due_ns;
    uint64_t counted_ns, count_took_ns;
    bool is_open, is_damaged /* when it was open last */, shrinks /* there may be something to give back */, closing;
    uint64_t renewed_ns, retry_ns; /* 0: never; at once */
    char said[160]; /* in the log, of opening */
    struct failing reading, writing;
};

/* What both sides use. */
struct sqlite_thread {
    pthread_t id;
    struct pile to_thread, to_loop;
    sem_t work; /* something lies there for the thread */
    int wake; /* eventfd: for the loop */
    atomic_bool knows_hits; /* the thread will look for hits by itself */
    uint64_t give_up_ns; /* set before CLOSE is sent */
    pthread_mutex_t mutex; /* guards the report; the loop only tries to lock it */
    struct file_report told;
    struct keeper *keeper;
};

static int64_t wall_s(void)
{
    return (int64_t)(quire_wall_ns() / 1000000000u);
}

/* ---- to and fro ------------------------------------------------------------------------------- */

static void lay(struct pile *p, struct item *i)
{
    struct item *top = atomic_load(&p->first);
    do
        i->next = top;
    while (!atomic_compare_exchange_weak(&p->first, &top, i));
}

/* All that lies there, in the order in which it came. */
static struct item *take_all(struct pile *p)
{
    struct item *i = atomic_exchange(&p->first, NULL), *in_order = NULL;
    for (struct item *next; i; i = next) {
        next = i->next;
        i->next = in_order;
        in_order = i;
    }
    return in_order;
}

static void append(struct queue *q, struct item *i)
{
    i->next = NULL;
    *q->end = i;
    q->end = &i->next;
}

static struct item *take_first(struct queue *q)
{
    struct item *i = q->first;
    q->first = i->next;
    if (!q->first)
        q->end = &q->first;
    return i;
}

static void tell_loop(struct keeper *k)
{
    const uint64_t one = 1;
    ssize_t n = write(k->thread->wake, &one, sizeof one);
    (void)n; /* the eventfd is full: the thread is already notified */
}

/* ---- the thread: opening, and damage ---------------------------------------------------------- */

static void say(struct keeper *k, bool connected, const char *doing, const char *what)
{
    pthread_mutex_lock(&k->thread->mutex);
    k->thread->told.connected = connected;
    snprintf(k->thread->told.trouble, sizeof k->thread->told.trouble, "%.20s%.135s", doing, what);
    pthread_mutex_unlock(&k->thread->mutex);
}

/* Handles the result of a read or write of an open file, such as a full disk. It logs a line at the start and at the
 * end of a fault, but not for faults that come and go within a minute. */
static void mind_failure(struct keeper *k, struct failing *f, int code)
{
    const char *doing = f == &k->reading ? "reading: " : "writing: ";
    if (code != SQLITE_OK) {
        say(k, true, doing, sqlite3_errstr(code));
        const uint64_t now_ns = quire_now_ns();
        if (f->code != code && (f->logged_ns == 0 || now_ns - f->logged_ns >= LOG_NS)) {
            quire_log(QUIRE_LOG_ERROR, "server", "--response-cache sqlite:%s: %s%s", k->path, doing,
                      sqlite3_errstr(code));
            f->logged_ns = now_ns;
            f->is_logged = true;
        }
    } else if (f->is_logged) {
        quire_log(QUIRE_LOG_INFO, "server", "--response-cache sqlite:%s: %sit works again", k->path, doing);
        f->is_logged = false;
    }
    f->code = code;
}

/* Handles the result of an integrity check. */
static void mind_damage(struct keeper *k, int code)
{
    if (!k->is_open || !sqlite_file_is_damage(code))
        return;
    sqlite_file_give_up(&k->file);
    k->is_open = k->shrinks = false;
    k->is_damaged = true;
    k->retry_ns = k->renewed_ns ? k->renewed_ns + RENEW_NS : 0;
    say(k, false, "", "the file is damaged");
    quire_log(QUIRE_LOG_ERROR, "server", "--response-cache sqlite:%s: the file is damaged", k->path);
}

static void opened(struct keeper *k, const char *note)
{
    if (k->is_damaged && !note[0])
        note = "it is damaged, and another process has created a new one";
    if (note[0])
        quire_log(QUIRE_LOG_WARN, "server", "--response-cache sqlite:%s: %s", k->path, note);
    say(k, true, "", note);
    pthread_mutex_lock(&k->thread->mutex);
    k->thread->told.n_reconnects += k->is_damaged;
    pthread_mutex_unlock(&k->thread->mutex);
    k->renewed_ns = k->is_damaged ? quire_now_ns() : 0;
    k->is_damaged = false;
    k->is_open = true;
    k->said[0] = '\0';
}

static void could_not_open(struct keeper *k, const char *why)
{
    k->retry_ns = quire_now_ns() + RETRY_NS;
    say(k, false, "", why);
    if (strncmp(k->said, why, sizeof k->said - 1) == 0)
        return;
    snprintf(k->said, sizeof k->said, "%.159s", why);
    quire_log(QUIRE_LOG_ERROR, "server", "answers are cached in memory only for now: %s", why);
}

/* Whether the file can be used; else it is opened, or, where it was damaged, set aside and begun afresh. */
static bool is_usable(struct keeper *k)
{
    struct quire_error err;
    char note[256];
    if (k->is_open || quire_now_ns() < k->retry_ns)
        return k->is_open;
    const int status = k->is_damaged ? sqlite_file_renew(&k->file, note, &err)
                                     : sqlite_file_open(&k->file, k->path, k->identity, k->max_bytes, note, &err);
    if (status == QUIRE_OK)
        opened(k, note);
    else
        could_not_open(k, err.text);
    return k->is_open;
}

/* At most a hundredth of the time goes into counting. */
static void count(struct keeper *k)
{
    const uint64_t begun_ns = quire_now_ns();
    uint64_t n_entries = 0, n_expired = 0, n_bytes = 0;
    if (k->counted_ns && begun_ns - k->counted_ns < 100 * k->count_took_ns)
        return;
    const int code = sqlite_file_count(&k->file, wall_s(), &n_entries, &n_expired, &n_bytes);
    mind_damage(k, code);
    if (code != SQLITE_OK)
        return;
    k->counted_ns = quire_now_ns();
    k->count_took_ns = k->counted_ns - begun_ns;
    pthread_mutex_lock(&k->thread->mutex);
    k->thread->told.n_entries = n_entries;
    k->thread->told.n_expired = n_expired;
    k->thread->told.n_bytes = n_bytes;
    pthread_mutex_unlock(&k->thread->mutex);
}

/* ---- the thread: work ------------------------------------------------------------------------- */

static void look_up(struct keeper *k, struct sqlite_lookup *l)
{
    l->code = is_usable(k) ? sqlite_file_get(&k->file, l->key, wall_s(), &l->found) : SQLITE_CANTOPEN;
    if (k->is_open && !sqlite_file_is_damage(l->code))
        mind_failure(k, &k->reading, l->code == SQLITE_ROW || l->code == SQLITE_DONE ? SQLITE_OK : l->code);
    mind_damage(k, l->code);
    lay(&k->thread->to_loop, &l->item);
    tell_loop(k);
}

static int do_job(struct keeper *k, struct sqlite_job *j, uint64_t *n_evicted)
{
    const int64_t now_s = wall_s();
    switch (j->item.kind) {
    case PUT: return sqlite_file_put(&k->file, &j->put, now_s, n_evicted);
    case REMOVE: return sqlite_file_remove(&k->file, j->put.key);
    case HIT: return sqlite_file_hit(&k->file, j->put.key, now_s);
    case CLEAR: return sqlite_file_clear(&k->file, now_s, &j->n_removed);
    default: return SQLITE_INTERNAL;
    }
}

/* One transaction. */
static int write_batch(struct keeper *k, struct item *batch, uint64_t *n_evicted)
{
    int code = sqlite_file_begin(&k->file);
    for (struct item *i = batch; i && code == SQLITE_OK; i = i->next) {
        struct sqlite_job *j = (struct sqlite_job *)i;
        code = do_job(k, j, n_evicted);
        j->ok = code == SQLITE_OK;
        if (code == SQLITE_TOOBIG) /* larger than the file may be: this one alone */
            code = SQLITE_OK;
    }
    if (code == SQLITE_OK)
        code = sqlite_file_commit(&k->file);
    if (code != SQLITE_OK)
        sqlite_file_rollback(&k->file);
    return code;
}

/* Off the queue's front. */
static struct item *take_batch(struct keeper *k)
{
    struct queue batch = {.end = &batch.first};
    size_t n_bytes = 0;
    for (uint32_t n = 0; k->jobs.first && n < BATCH_JOBS && n_bytes < BATCH_BYTES; n++) {
        struct item *i = take_first(&k->jobs);
        n_bytes += ((struct sqlite_job *)i)->put.n;
        k->n_hits_waiting -= i->kind == HIT;
        k->n_jobs_waiting--;
        append(&batch, i);
    }
    if (k->n_hits_waiting == 0)
        atomic_store(&k->thread->knows_hits, false);
    return batch.first;
}

static void do_batch(struct keeper *k)
{
    uint64_t n_evicted = 0;
    struct item *batch = take_batch(k);
    const int code = is_usable(k) ? write_batch(k, batch, &n_evicted) : SQLITE_CANTOPEN;
    if (k->is_open && !sqlite_file_is_damage(code))
        mind_failure(k, &k->writing, code);
    mind_damage(k, code);
    if (code == SQLITE_OK)
        count(k);
    for (struct item *i = batch, *next; i; i = next) {
        struct sqlite_job *j = (struct sqlite_job *)i;
        next = i->next;
        j->ok &= code == SQLITE_OK;
        j->n_evicted = i == batch && code == SQLITE_OK ? n_evicted : 0;
        k->shrinks |= j->item.kind == CLEAR && j->ok;
        lay(&k->thread->to_loop, i);
    }
    tell_loop(k);
}

static void take_in(struct keeper *k)
{
    for (struct item *i = take_all(&k->thread->to_thread), *next; i; i = next) {
        next = i->next;
        if (i->kind == CLOSE) {
            k->closing = true;
        } else if (i->kind == LOOKUP) {
            append(&k->asked, i);
        } else if (i->kind == READ) {
            free(((struct sqlite_lookup *)i)->found.bytes);
            ((struct sqlite_lookup *)i)->found.bytes = NULL;
            lay(&k->thread->to_loop, i); /* it is freed with what comes next */
        } else {
            if (i->kind == HIT && k->n_hits_waiting++ == 0)
                k->hits_due_ns = quire_now_ns() + HITS_WAIT_NS;
            k->n_jobs_waiting++;
            append(&k->jobs, i);
        }
    }
}

/* Until there is something, or hits have waited long enough. */
static void sleep_a_while(struct keeper *k)
{
    const struct timespec due = quire_until_ns(k->hits_due_ns);
    if (k->n_hits_waiting == 0)
        sem_wait(&k->thread->work);
    else
        sem_clockwait(&k->thread->work, CLOCK_MONOTONIC, &due);
}

static void *keeper(void *context)
{
    struct keeper *k = context;
    if (is_usable(k))
        count(k);
    for (;;) {
        take_in(k);
        if (k->closing && (k->n_jobs_waiting == 0 || quire_now_ns() > k->thread->give_up_ns))
            break;
        if (k->asked.first)
            look_up(k, (struct sqlite_lookup *)take_first(&k->asked));
        else if (k->n_jobs_waiting > k->n_hits_waiting ||
                 (k->n_jobs_waiting > 0 && (k->closing || quire_now_ns() >= k->hits_due_ns)))
            do_batch(k);
        else if (k->shrinks)
            mind_damage(k, sqlite_file_shrink(&k->file, &k->shrinks));
        else
            sleep_a_while(k);
    }
    if (k->is_open || k->is_damaged)
        sqlite_file_close(&k->file);
    return NULL;
}

/* ---- the loop's side -------------------------------------------------------------------------- */

int sqlite_thread_wake_fd(const struct sqlite_thread *t)
{
    return t->wake;
}

void sqlite_thread_lay(struct sqlite_thread *t, struct item *i)
{
    lay(&t->to_thread, i);
}

void sqlite_thread_wake(struct sqlite_thread *t)
{
    sem_post(&t->work);
}

void sqlite_thread_give(struct sqlite_thread *t, struct item *i)
{
    lay(&t->to_thread, i);
    if (i->kind != HIT || !atomic_exchange(&t->knows_hits, true))
        sem_post(&t->work);
}

struct item *sqlite_thread_take(struct sqlite_thread *t)
{
    return take_all(&t->to_loop);
}

void sqlite_thread_report(struct sqlite_thread *t, struct store_stats *out)
{
    const struct file_report *told = &t->told;
    if (pthread_mutex_trylock(&t->mutex) != 0)
        return;
    out->connected = told->connected;
    out->n_entries = told->n_entries;
    out->n_expired = told->n_expired;
    out->n_bytes = told->n_bytes;
    out->n_reconnects = told->n_reconnects;
    memcpy(out->trouble, told->trouble, sizeof told->trouble);
    pthread_mutex_unlock(&t->mutex);
}

int sqlite_thread_start(const char *path, struct key256 identity, uint64_t max_bytes, struct sqlite_thread **out,
                        struct quire_error *err)
{
    struct sqlite_thread *t = calloc(1, sizeof *t);
    struct keeper *k = calloc(1, sizeof *k);
    *out = NULL;
    if (!t || !k) {
        free(t);
        free(k);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    *k = (struct keeper){.thread = t, .path = strdup(path), .identity = identity, .max_bytes = max_bytes};
    k->asked.end = &k->asked.first;
    k->jobs.end = &k->jobs.first;
    t->keeper = k;
    pthread_mutex_init(&t->mutex, NULL);
    sem_init(&t->work, 0, 0);
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const char *wrong = !k->path || t->wake < 0 ? "out of memory" : NULL;
    if (!wrong && pthread_create(&t->id, NULL, keeper, k) != 0)
        wrong = "a thread cannot be started";
    if (wrong) {
        sqlite_thread_free(t);
        return quire_fail(err, QUIRE_NO_MEMORY, "%s", wrong);
    }
    *out = t;
    return QUIRE_OK;
}

void sqlite_thread_stop(struct sqlite_thread *t, uint32_t wait_ms)
{
    struct item last = {.kind = CLOSE};
    t->give_up_ns = quire_now_ns() + wait_ms * NS_PER_MS;
    sqlite_thread_give(t, &last);
    pthread_join(t->id, NULL);
}

struct item *sqlite_thread_left(struct sqlite_thread *t)
{
    struct keeper *k = t->keeper;
    for (struct item *i = take_all(&t->to_thread), *next; i; i = next) {
        next = i->next;
        append(&k->jobs, i);
    }
    for (struct item *i = take_all(&t->to_loop), *next; i; i = next) {
        next = i->next;
        append(&k->jobs, i);
    }
    struct queue *q = k->asked.first ? &k->asked : &k->jobs;
    struct item *left = q->first ? take_first(q) : NULL;
    if (left && (left->kind == LOOKUP || left->kind == READ))
        free(((struct sqlite_lookup *)left)->found.bytes);
    return left;
}

void sqlite_thread_free(struct sqlite_thread *t)
{
    if (t->wake >= 0)
        close(t->wake);
    sem_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    free(t->keeper->path);
    free(t->keeper);
    free(t);
}
