/* A SQLite file as a store: the loop's side, and the only thread that opens, reads, writes and closes the file.
 * Lookups go first. Writes go in batches, one transaction each.
 *
 * The loop never waits for the thread, which the system may suspend anywhere. It takes no lock: with a mutex and a
 * condition the loop stood still for 5 to 15 ms when more threads than cores were busy. It also avoids malloc's
 * lock, which had the same effect when one thread freed what the other had allocated. Jobs move between them through
 * two lock-free stacks. The loop allocates and frees all jobs, and the thread allocates only the data that it has
 * read. */
#include "server/cache/store/sqlite_file.h"
#include "server/cache/store/store.h"

#include "base/clock.h"
#include "base/log.h"

#include <event2/event_struct.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
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
#define BATCH_JOBS 64u /* jobs per transaction, because lookups wait for its end */
#define BATCH_BYTES ((size_t)1 << 20)
#define NS_PER_MS UINT64_C(1000000)
#define HITS_WAIT_NS (UINT64_C(1000) * NS_PER_MS) /* hits alone do not wake the thread for this long */
/* Delay before an unusable file is tried again. It also separates two damaged files that are renamed, so that a disk
 * that corrupts every write produces at most one per minute. */
#define RETRY_NS (UINT64_C(250) * NS_PER_MS)
#define RENEW_NS (UINT64_C(60000) * NS_PER_MS)
#define LOG_NS (60 * UINT64_C(1000000000)) /* between two lines about the same kind of failure */

enum item_kind { LOOKUP, READ /* a lookup whose bytes the thread may free */, PUT, REMOVE, HIT, CLEAR, CLOSE };
struct item {
    struct item *next;
    enum item_kind kind;
};
struct pile { /* the last that came lies first */
    _Atomic(struct item *) first;
};
struct queue {
    struct item *first, **end;
};

struct store_lookup {
    struct item item; /* first, as in a job */
    struct sqlite_store *store;
    struct key256 key;
    struct event timer;
    store_answer answer; /* the loop's: NULL once it was given, cancelled or late */
    void *context;
    int code; /* the thread's, until it is done; what was found, too */
    struct sqlite_found found;
};
struct job {
    struct item item;
    struct sqlite_put put;
    void (*done)(void *context, bool ok, uint64_t n_removed); /* of a clear */
    void *context;
    bool ok;
    uint64_t n_removed, n_evicted; /* n_evicted: of its batch, at one of it */
    uint8_t bytes[];
};

struct sqlite_store {
    struct answer_store base;
    pthread_t thread;
    struct pile to_thread, to_loop;
    sem_t work; /* something lies there for the thread */
    int wake; /* eventfd: for the loop */
    atomic_bool knows_hits; /* the thread will look for hits by itself */
    uint64_t give_up_ns; /* set before CLOSE is sent */

    /* The loop's. */
    struct event *on_done;
    uint32_t n_lookups; /* on their way */
    size_t n_jobs, n_bytes; /* likewise */
    struct store_stats stats; /* without the thread's counters */

    /* The thread's. */
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
    struct failing {
        int code; /* result of the last operation; SQLITE_OK: it works */
        uint64_t logged_ns; /* 0: never */
        bool is_logged; /* since it worked last */
    } reading, writing;

    pthread_mutex_t mutex; /* guards the thread's report; the loop only tries to lock it */
    struct store_stats told;
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

static void tell_loop(struct sqlite_store *s)
{
    const uint64_t one = 1;
    ssize_t n = write(s->wake, &one, sizeof one);
    (void)n; /* the eventfd is full: the thread is already notified */
}

/* ---- the thread: opening, and damage ---------------------------------------------------------- */

static void say(struct sqlite_store *s, bool connected, const char *doing, const char *what)
{
    pthread_mutex_lock(&s->mutex);
    s->told.connected = connected;
    snprintf(s->told.trouble, sizeof s->told.trouble, "%.20s%.135s", doing, what);
    pthread_mutex_unlock(&s->mutex);
}

/* Handles the result of a read or write of an open file, such as a full disk. It logs a line at the start and at the
 * end of a fault, but not for faults that come and go within a minute. */
static void mind_failure(struct sqlite_store *s, struct failing *f, int code)
{
    const char *doing = f == &s->reading ? "reading: " : "writing: ";
    if (code != SQLITE_OK) {
        say(s, true, doing, sqlite3_errstr(code));
        const uint64_t now_ns = quire_now_ns();
        if (f->code != code && (f->logged_ns == 0 || now_ns - f->logged_ns >= LOG_NS)) {
            quire_log(QUIRE_LOG_ERROR, "server", "--response-cache sqlite:%s: %s%s", s->path, doing,
                      sqlite3_errstr(code));
            f->logged_ns = now_ns;
            f->is_logged = true;
        }
    } else if (f->is_logged) {
        quire_log(QUIRE_LOG_INFO, "server", "--response-cache sqlite:%s: %sit works again", s->path, doing);
        f->is_logged = false;
    }
    f->code = code;
}

/* Handles the result of an integrity check. */
static void mind_damage(struct sqlite_store *s, int code)
{
    if (!s->is_open || !sqlite_file_is_damage(code))
        return;
    sqlite_file_give_up(&s->file);
    s->is_open = s->shrinks = false;
    s->is_damaged = true;
    s->retry_ns = s->renewed_ns ? s->renewed_ns + RENEW_NS : 0;
    say(s, false, "", "the file is damaged");
    quire_log(QUIRE_LOG_ERROR, "server", "--response-cache sqlite:%s: the file is damaged", s->path);
}

static void opened(struct sqlite_store *s, const char *note)
{
    if (s->is_damaged && !note[0])
        note = "it is damaged, and another process has created a new one";
    if (note[0])
        quire_log(QUIRE_LOG_WARN, "server", "--response-cache sqlite:%s: %s", s->path, note);
    say(s, true, "", note);
    pthread_mutex_lock(&s->mutex);
    s->told.n_reconnects += s->is_damaged;
    pthread_mutex_unlock(&s->mutex);
    s->renewed_ns = s->is_damaged ? quire_now_ns() : 0;
    s->is_damaged = false;
    s->is_open = true;
    s->said[0] = '\0';
}

static void could_not_open(struct sqlite_store *s, const char *why)
{
    s->retry_ns = quire_now_ns() + RETRY_NS;
    say(s, false, "", why);
    if (strncmp(s->said, why, sizeof s->said - 1) == 0)
        return;
    snprintf(s->said, sizeof s->said, "%.159s", why);
    quire_log(QUIRE_LOG_ERROR, "server", "answers are cached in memory only for now: %s", why);
}

/* Whether the file can be used; else it is opened, or, where it was damaged, set aside and begun afresh. */
static bool is_usable(struct sqlite_store *s)
{
    struct quire_error err;
    char note[256];
    if (s->is_open || quire_now_ns() < s->retry_ns)
        return s->is_open;
    const int status = s->is_damaged ? sqlite_file_renew(&s->file, note, &err)
                                     : sqlite_file_open(&s->file, s->path, s->identity, s->max_bytes, note, &err);
    if (status == QUIRE_OK)
        opened(s, note);
    else
        could_not_open(s, err.text);
    return s->is_open;
}

/* At most a hundredth of the time goes into counting. */
static void count(struct sqlite_store *s)
{
    const uint64_t begun_ns = quire_now_ns();
    uint64_t n_entries = 0, n_expired = 0, n_bytes = 0;
    if (s->counted_ns && begun_ns - s->counted_ns < 100 * s->count_took_ns)
        return;
    const int code = sqlite_file_count(&s->file, wall_s(), &n_entries, &n_expired, &n_bytes);
    mind_damage(s, code);
    if (code != SQLITE_OK)
        return;
    s->counted_ns = quire_now_ns();
    s->count_took_ns = s->counted_ns - begun_ns;
    pthread_mutex_lock(&s->mutex);
    s->told.n_entries = n_entries;
    s->told.n_expired = n_expired;
    s->told.n_bytes = n_bytes;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- the thread: work ------------------------------------------------------------------------- */

static void look_up(struct sqlite_store *s, struct store_lookup *l)
{
    l->code = is_usable(s) ? sqlite_file_get(&s->file, l->key, wall_s(), &l->found) : SQLITE_CANTOPEN;
    if (s->is_open && !sqlite_file_is_damage(l->code))
        mind_failure(s, &s->reading, l->code == SQLITE_ROW || l->code == SQLITE_DONE ? SQLITE_OK : l->code);
    mind_damage(s, l->code);
    lay(&s->to_loop, &l->item);
    tell_loop(s);
}

static int do_job(struct sqlite_store *s, struct job *j, uint64_t *n_evicted)
{
    const int64_t now_s = wall_s();
    switch (j->item.kind) {
    case PUT: return sqlite_file_put(&s->file, &j->put, now_s, n_evicted);
    case REMOVE: return sqlite_file_remove(&s->file, j->put.key);
    case HIT: return sqlite_file_hit(&s->file, j->put.key, now_s);
    case CLEAR: return sqlite_file_clear(&s->file, now_s, &j->n_removed);
    default: return SQLITE_INTERNAL;
    }
}

/* One transaction. */
static int write_batch(struct sqlite_store *s, struct item *batch, uint64_t *n_evicted)
{
    int code = sqlite_file_begin(&s->file);
    for (struct item *i = batch; i && code == SQLITE_OK; i = i->next) {
        struct job *j = (struct job *)i;
        code = do_job(s, j, n_evicted);
        j->ok = code == SQLITE_OK;
        if (code == SQLITE_TOOBIG) /* larger than the file may be: this one alone */
            code = SQLITE_OK;
    }
    if (code == SQLITE_OK)
        code = sqlite_file_commit(&s->file);
    if (code != SQLITE_OK)
        sqlite_file_rollback(&s->file);
    return code;
}

/* Off the queue's front. */
static struct item *take_batch(struct sqlite_store *s)
{
    struct queue batch = {.end = &batch.first};
    size_t n_bytes = 0;
    for (uint32_t n = 0; s->jobs.first && n < BATCH_JOBS && n_bytes < BATCH_BYTES; n++) {
        struct item *i = take_first(&s->jobs);
        n_bytes += ((struct job *)i)->put.n;
        s->n_hits_waiting -= i->kind == HIT;
        s->n_jobs_waiting--;
        append(&batch, i);
    }
    if (s->n_hits_waiting == 0)
        atomic_store(&s->knows_hits, false);
    return batch.first;
}

static void do_batch(struct sqlite_store *s)
{
    uint64_t n_evicted = 0;
    struct item *batch = take_batch(s);
    const int code = is_usable(s) ? write_batch(s, batch, &n_evicted) : SQLITE_CANTOPEN;
    if (s->is_open && !sqlite_file_is_damage(code))
        mind_failure(s, &s->writing, code);
    mind_damage(s, code);
    if (code == SQLITE_OK)
        count(s);
    for (struct item *i = batch, *next; i; i = next) {
        struct job *j = (struct job *)i;
        next = i->next;
        j->ok &= code == SQLITE_OK;
        j->n_evicted = i == batch && code == SQLITE_OK ? n_evicted : 0;
        s->shrinks |= j->item.kind == CLEAR && j->ok;
        lay(&s->to_loop, i);
    }
    tell_loop(s);
}

static void take_in(struct sqlite_store *s)
{
    for (struct item *i = take_all(&s->to_thread), *next; i; i = next) {
        next = i->next;
        if (i->kind == CLOSE) {
            s->closing = true;
        } else if (i->kind == LOOKUP) {
            append(&s->asked, i);
        } else if (i->kind == READ) {
            free(((struct store_lookup *)i)->found.bytes);
            ((struct store_lookup *)i)->found.bytes = NULL;
            lay(&s->to_loop, i); /* it is freed with what comes next */
        } else {
            if (i->kind == HIT && s->n_hits_waiting++ == 0)
                s->hits_due_ns = quire_now_ns() + HITS_WAIT_NS;
            s->n_jobs_waiting++;
            append(&s->jobs, i);
        }
    }
}

/* Until there is something, or hits have waited long enough. */
static void sleep_a_while(struct sqlite_store *s)
{
    const struct timespec due = quire_until_ns(s->hits_due_ns);
    if (s->n_hits_waiting == 0)
        sem_wait(&s->work);
    else
        sem_clockwait(&s->work, CLOCK_MONOTONIC, &due);
}

static void *keeper(void *context)
{
    struct sqlite_store *s = context;
    if (is_usable(s))
        count(s);
    for (;;) {
        take_in(s);
        if (s->closing && (s->n_jobs_waiting == 0 || quire_now_ns() > s->give_up_ns))
            break;
        if (s->asked.first)
            look_up(s, (struct store_lookup *)take_first(&s->asked));
        else if (s->n_jobs_waiting > s->n_hits_waiting ||
                 (s->n_jobs_waiting > 0 && (s->closing || quire_now_ns() >= s->hits_due_ns)))
            do_batch(s);
        else if (s->shrinks)
            mind_damage(s, sqlite_file_shrink(&s->file, &s->shrinks));
        else
            sleep_a_while(s);
    }
    if (s->is_open || s->is_damaged)
        sqlite_file_close(&s->file);
    return NULL;
}

/* ---- the loop's side -------------------------------------------------------------------------- */

static struct sqlite_store *of(const struct answer_store *s)
{
    return (struct sqlite_store *)s;
}

static void hand_over(struct sqlite_store *s, struct item *i)
{
    lay(&s->to_thread, i);
    if (i->kind != HIT || !atomic_exchange(&s->knows_hits, true))
        sem_post(&s->work);
}

static void answer(struct store_lookup *l, enum store_found found)
{
    struct sqlite_store *s = l->store;
    store_answer to = l->answer;
    if (!to)
        return;
    l->answer = NULL;
    s->stats.n_hits += found == STORE_FOUND;
    s->stats.n_misses += found == STORE_MISS;
    s->stats.n_away += found == STORE_AWAY;
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

/* True: the thread has something to free. */
static bool lookup_back(struct sqlite_store *s, struct store_lookup *l)
{
    if (l->item.kind == READ) {
        free(l);
        return false;
    }
    s->n_lookups--;
    answer(l, l->code == SQLITE_ROW ? STORE_FOUND : l->code == SQLITE_DONE ? STORE_MISS : STORE_AWAY);
    event_del(&l->timer);
    if (!l->found.bytes) {
        free(l);
        return false;
    }
    l->item.kind = READ;
    lay(&s->to_thread, &l->item);
    return true;
}

static void job_back(struct sqlite_store *s, struct job *j)
{
    s->n_jobs--;
    s->n_bytes -= j->put.n;
    s->stats.n_evicted += j->n_evicted;
    if (j->item.kind == PUT) {
        s->stats.n_waiting--;
        s->stats.n_put_failed += !j->ok;
    }
    if (j->done)
        j->done(j->context, j->ok, j->n_removed);
    free(j);
}

static void on_done(evutil_socket_t fd, short what, void *context)
{
    struct sqlite_store *s = context;
    uint64_t n;
    bool any_read = false;
    (void)what;
    if (read(fd, &n, sizeof n) < 0)
        return;
    for (struct item *i = take_all(&s->to_loop), *next; i; i = next) {
        next = i->next;
        if (i->kind == LOOKUP || i->kind == READ)
            any_read |= lookup_back(s, (struct store_lookup *)i);
        else
            job_back(s, (struct job *)i);
    }
    if (any_read)
        sem_post(&s->work);
}

static struct store_lookup *sqlite_get(struct answer_store *base, struct key256 key, store_answer to, void *context)
{
    struct sqlite_store *s = of(base);
    struct store_lookup *l = s->n_lookups < MAX_LOOKUPS ? calloc(1, sizeof *l) : NULL;
    s->stats.n_lookups++;
    if (!l) {
        s->stats.n_away++;
        return NULL;
    }
    s->n_lookups++;
    l->item.kind = LOOKUP;
    l->store = s;
    l->key = key;
    l->answer = to;
    l->context = context;
    const struct timeval soon = {.tv_usec = LOOKUP_MS * 1000};
    evtimer_assign(&l->timer, event_get_base(s->on_done), on_late, l);
    evtimer_add(&l->timer, &soon);
    hand_over(s, &l->item);
    return l;
}

static void sqlite_cancel(struct answer_store *base, struct store_lookup *l)
{
    (void)base;
    l->answer = NULL;
    event_del(&l->timer);
}

static bool has_space(const struct sqlite_store *s, enum item_kind kind, size_t n)
{
    if (kind == HIT)
        return s->n_jobs < MAX_WAITING_JOBS / 2;
    return kind != PUT || (s->n_jobs < MAX_WAITING_JOBS && s->n_bytes + n <= MAX_WAITING_BYTES);
}

/* To be sent with send_job(). NULL: there is no room, or no memory. */
static struct job *new_job(struct sqlite_store *s, enum item_kind kind, struct key256 key, size_t n)
{
    struct job *j = has_space(s, kind, n) ? calloc(1, sizeof *j + n) : NULL;
    if (j) {
        j->item.kind = kind;
        j->put.key = key;
        j->put.n = n;
    }
    return j;
}

static void send_job(struct sqlite_store *s, struct job *j)
{
    s->n_jobs++;
    s->n_bytes += j->put.n;
    s->stats.n_waiting += j->item.kind == PUT;
    hand_over(s, &j->item);
}

static void sqlite_put(struct answer_store *base, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                       uint32_t ttl_s, uint32_t n_tokens, struct key256 domain)
{
    struct sqlite_store *s = of(base);
    struct job *j = n > 0 && n <= SQLITE_FILE_MAX_ANSWER ? new_job(s, PUT, key, n) : NULL;
    s->stats.n_puts++;
    if (!j) {
        s->stats.n_put_failed++;
        return;
    }
    memcpy(j->bytes, bytes, n);
    j->put.bytes = j->bytes;
    j->put.created_s = created_s;
    j->put.expires_s = created_s + ttl_s;
    j->put.n_tokens = n_tokens;
    j->put.domain = domain;
    send_job(s, j);
}

static void send_small(struct answer_store *base, enum item_kind kind, struct key256 key)
{
    struct job *j = new_job(of(base), kind, key, 0);
    if (j)
        send_job(of(base), j);
}

static void sqlite_remove(struct answer_store *base, struct key256 key)
{
    send_small(base, REMOVE, key);
}

static void sqlite_hit(struct answer_store *base, struct key256 key)
{
    send_small(base, HIT, key);
}

static void sqlite_clear(struct answer_store *base, void (*done)(void *context, bool ok, uint64_t n_removed),
                         void *context)
{
    struct job *j = new_job(of(base), CLEAR, (struct key256){0}, 0);
    if (!j) {
        done(context, false, 0);
        return;
    }
    j->done = done;
    j->context = context;
    send_job(of(base), j);
}

static void sqlite_stats(const struct answer_store *base, struct store_stats *out)
{
    struct sqlite_store *s = of(base);
    if (pthread_mutex_trylock(&s->mutex) == 0) { /* else what it said before */
        const struct store_stats *told = &s->told;
        s->stats.connected = told->connected;
        s->stats.n_entries = told->n_entries;
        s->stats.n_expired = told->n_expired;
        s->stats.n_bytes = told->n_bytes;
        s->stats.n_reconnects = told->n_reconnects;
        memcpy(s->stats.trouble, told->trouble, sizeof told->trouble);
        pthread_mutex_unlock(&s->mutex);
    }
    *out = s->stats;
}

static void free_items(struct item *i)
{
    for (struct item *next; i; i = next) {
        next = i->next;
        if (i->kind == LOOKUP) /* the others' timers are over */
            event_del(&((struct store_lookup *)i)->timer);
        if (i->kind == LOOKUP || i->kind == READ)
            free(((struct store_lookup *)i)->found.bytes);
        free(i);
    }
}

/* Its thread is no more. */
static void free_store(struct sqlite_store *s)
{
    free_items(take_all(&s->to_thread));
    free_items(take_all(&s->to_loop));
    free_items(s->asked.first);
    free_items(s->jobs.first);
    if (s->on_done)
        event_free(s->on_done);
    if (s->wake >= 0)
        close(s->wake);
    sem_destroy(&s->work);
    pthread_mutex_destroy(&s->mutex);
    free(s->path);
    free(s);
}

static void sqlite_close(struct answer_store *base, uint32_t wait_ms)
{
    struct sqlite_store *s = of(base);
    struct item last = {.kind = CLOSE};
    s->give_up_ns = quire_now_ns() + wait_ms * NS_PER_MS;
    hand_over(s, &last);
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

int store_probe_sqlite(const char *path, struct quire_error *err)
{
    return sqlite_file_probe(path, err);
}

int store_open_sqlite(struct event_base *base, const char *path, struct key256 identity, uint64_t max_bytes,
                      struct answer_store **out, struct quire_error *err)
{
    *out = NULL;
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    s->base.ops = &ops;
    s->asked.end = &s->asked.first;
    s->jobs.end = &s->jobs.first;
    s->identity = identity;
    s->max_bytes = max_bytes;
    s->path = strdup(path);
    pthread_mutex_init(&s->mutex, NULL);
    sem_init(&s->work, 0, 0);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->on_done = s->wake < 0 ? NULL : event_new(base, s->wake, EV_READ | EV_PERSIST, on_done, s);
    const char *wrong = !s->path || !s->on_done || event_add(s->on_done, NULL) != 0 ? "out of memory" : NULL;
    if (!wrong && pthread_create(&s->thread, NULL, keeper, s) != 0)
        wrong = "a thread cannot be started";
    if (wrong) {
        free_store(s);
        return quire_fail(err, QUIRE_NO_MEMORY, "%s", wrong);
    }
    *out = &s->base;
    return QUIRE_OK;
}
