/* A SQLite file as a store: the loop's side. sqlite_thread.h has the thread that works on the file. Lookups go first.
 * Writes go in batches, one transaction each. */
#include "server/cache/store/sqlite_thread.h"
#include "server/cache/store/store.h"

#include <event2/event_struct.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKUP_MS 50 /* a disk that takes longer is slower than many an engine */
#define MAX_LOOKUPS 1024u /* on their way */
#define MAX_WAITING_BYTES ((size_t)64 << 20)
#define MAX_WAITING_JOBS 4096u

struct store_lookup {
    struct sqlite_lookup at; /* first member */
    struct sqlite_store *store;
    struct event timer;
    store_answer answer; /* NULL once it was given, cancelled or late */
    void *context;
};
struct job {
    struct sqlite_job at; /* first member */
    void (*done)(void *context, bool ok, uint64_t n_removed); /* of a clear */
    void *context;
    uint8_t bytes[];
};

struct sqlite_store {
    struct answer_store base;
    struct sqlite_thread *thread;
    struct event *on_done;
    uint32_t n_lookups; /* on their way */
    size_t n_jobs, n_bytes; /* likewise */
    struct store_stats stats; /* with what the thread last reported */
};

static struct sqlite_store *of(const struct answer_store *s)
{
    return (struct sqlite_store *)s;
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
        to(l->context, found, l->at.found.bytes, l->at.found.n, l->at.found.created_s, l->at.found.expires_s,
           l->at.found.hits);
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
    if (l->at.item.kind == READ) {
        free(l);
        return false;
    }
    s->n_lookups--;
    answer(l, l->at.code == SQLITE_ROW ? STORE_FOUND : l->at.code == SQLITE_DONE ? STORE_MISS : STORE_AWAY);
    event_del(&l->timer);
    if (!l->at.found.bytes) {
        free(l);
        return false;
    }
    l->at.item.kind = READ;
    sqlite_thread_lay(s->thread, &l->at.item);
    return true;
}

static void job_back(struct sqlite_store *s, struct job *j)
{
    s->n_jobs--;
    s->n_bytes -= j->at.put.n;
    s->stats.n_evicted += j->at.n_evicted;
    if (j->at.item.kind == PUT) {
        s->stats.n_waiting--;
        s->stats.n_put_failed += !j->at.ok;
    }
    if (j->done)
        j->done(j->context, j->at.ok, j->at.n_removed);
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
    for (struct item *i = sqlite_thread_take(s->thread), *next; i; i = next) {
        next = i->next;
        if (i->kind == LOOKUP || i->kind == READ)
            any_read |= lookup_back(s, (struct store_lookup *)i);
        else
            job_back(s, (struct job *)i);
    }
    if (any_read)
        sqlite_thread_wake(s->thread);
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
    l->at.item.kind = LOOKUP;
    l->store = s;
    l->at.key = key;
    l->answer = to;
    l->context = context;
    const struct timeval soon = {.tv_usec = LOOKUP_MS * 1000};
    evtimer_assign(&l->timer, event_get_base(s->on_done), on_late, l);
    evtimer_add(&l->timer, &soon);
    sqlite_thread_give(s->thread, &l->at.item);
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
        j->at.item.kind = kind;
        j->at.put.key = key;
        j->at.put.n = n;
    }
    return j;
}

static void send_job(struct sqlite_store *s, struct job *j)
{
    s->n_jobs++;
    s->n_bytes += j->at.put.n;
    s->stats.n_waiting += j->at.item.kind == PUT;
    sqlite_thread_give(s->thread, &j->at.item);
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
    j->at.put.bytes = j->bytes;
    j->at.put.created_s = created_s;
    j->at.put.expires_s = created_s + ttl_s;
    j->at.put.n_tokens = n_tokens;
    j->at.put.domain = domain;
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
    sqlite_thread_report(s->thread, &s->stats); /* or what it said before */
    *out = s->stats;
}

/* Its thread is no more. */
static void free_store(struct sqlite_store *s)
{
    struct item *i;
    while ((i = sqlite_thread_left(s->thread))) {
        if (i->kind == LOOKUP) /* the others' timers are over */
            event_del(&((struct store_lookup *)i)->timer);
        free(i);
    }
    if (s->on_done)
        event_free(s->on_done);
    sqlite_thread_free(s->thread);
    free(s);
}

static void sqlite_close(struct answer_store *base, uint32_t wait_ms)
{
    sqlite_thread_stop(of(base)->thread, wait_ms);
    free_store(of(base));
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
    const int status = sqlite_thread_start(path, identity, max_bytes, &s->thread, err);
    if (status != QUIRE_OK) {
        free(s);
        return status;
    }
    s->on_done = event_new(base, sqlite_thread_wake_fd(s->thread), EV_READ | EV_PERSIST, on_done, s);
    if (!s->on_done || event_add(s->on_done, NULL) != 0) {
        sqlite_close(&s->base, 0);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    *out = &s->base;
    return QUIRE_OK;
}
