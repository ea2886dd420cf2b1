#include "server/front/responses/response_store.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/front/responses/response_db.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#define MAX_WAITING_BYTES ((uint64_t)64 << 20) /* put, but not written yet */
#define EXPIRE_S 30 /* between two looks for expired responses, while nothing is put */
#define LOG_S 60    /* between two lines about failures */

struct waiting {
    STAILQ_ENTRY(waiting) link;
    struct response_record record;
    uint64_t n_bytes;
};
STAILQ_HEAD(waiting_list, waiting);

struct response_store {
    struct response_db db;
    pthread_mutex_t db_mutex; /* guards db */
    pthread_mutex_t mutex;    /* guards the members below; held for a few instructions only */
    pthread_cond_t work;
    struct waiting_list list;
    uint64_t n_waiting_bytes;
    bool closing;
    int64_t logged_s;
    pthread_t thread;
};

static int64_t wall_s(void)
{
    return (int64_t)(quire_wall_ns() / 1000000000u);
}

void response_record_free(struct response_record *r)
{
    buffer_free(&r->input);
    buffer_free(&r->reply);
}

void response_id(char out[RESPONSE_ID_BYTES])
{
    uint64_t random[2];
    quire_random(random, sizeof random);
    snprintf(out, RESPONSE_ID_BYTES, RESPONSE_ID_PREFIX "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void log_failure(struct response_store *s, const char *why)
{
    const int64_t now = wall_s();
    pthread_mutex_lock(&s->mutex);
    const bool due = now - s->logged_s >= LOG_S || now < s->logged_s;
    if (due)
        s->logged_s = now;
    pthread_mutex_unlock(&s->mutex);
    if (due)
        quire_log(QUIRE_LOG_WARN, "server", "a response of /v1/responses is not stored: %s", why);
}

static const char *reason(const struct response_store *s, int code)
{
    return code == SQLITE_TOOBIG ? "it is larger than a tenant's part of --response-store-size"
                                 : sqlite3_errmsg(s->db.db);
}

/* Writes what was put until now. db_mutex is held. */
static void flush(struct response_store *s)
{
    struct waiting_list list = STAILQ_HEAD_INITIALIZER(list);
    struct waiting *w;
    uint64_t n_bytes = 0;
    pthread_mutex_lock(&s->mutex);
    STAILQ_CONCAT(&list, &s->list);
    pthread_mutex_unlock(&s->mutex);
    while ((w = STAILQ_FIRST(&list))) {
        int code = response_db_begin(&s->db);
        if (code == SQLITE_OK)
            code = response_db_end(&s->db, response_db_put(&s->db, &w->record, wall_s()));
        if (code != SQLITE_OK)
            log_failure(s, reason(s, code));
        n_bytes += w->n_bytes;
        STAILQ_REMOVE_HEAD(&list, link);
        response_record_free(&w->record);
        free(w);
    }
    pthread_mutex_lock(&s->mutex);
    s->n_waiting_bytes -= n_bytes;
    pthread_mutex_unlock(&s->mutex);
}

static void await_work(struct response_store *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXPIRE_S;
    int rc = 0;
    while (STAILQ_EMPTY(&s->list) && !s->closing && rc == 0)
        rc = pthread_cond_timedwait(&s->work, &s->mutex, &until);
}

static void *write_all(void *context)
{
    struct response_store *s = context;
    bool closing = false;
    while (!closing) {
        pthread_mutex_lock(&s->mutex);
        await_work(s);
        closing = s->closing;
        pthread_mutex_unlock(&s->mutex);
        pthread_mutex_lock(&s->db_mutex);
        flush(s);
        response_db_expire(&s->db, wall_s());
        pthread_mutex_unlock(&s->db_mutex);
    }
    return NULL;
}

void response_store_put(struct response_store *s, struct response_record *r)
{
    struct waiting *w = malloc(sizeof *w);
    const uint64_t n = r->input.n + r->reply.n;
    bool is_behind = false;
    if (!w || r->input.failed || r->reply.failed) {
        free(w);
        log_failure(s, "out of memory");
        response_record_free(r);
        return;
    }
    *w = (struct waiting){.record = *r, .n_bytes = n};
    r->input = r->reply = (struct buffer){0};
    pthread_mutex_lock(&s->mutex);
    is_behind = s->n_waiting_bytes > 0 && s->n_waiting_bytes + n > MAX_WAITING_BYTES;
    if (!is_behind) {
        s->n_waiting_bytes += n;
        STAILQ_INSERT_TAIL(&s->list, w, link);
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->mutex);
    if (!is_behind)
        return;
    response_record_free(&w->record);
    free(w);
    log_failure(s, "the disk is too slow");
}

/* ---- opening and closing -------------------------------------------------------------------- */

int response_store_open(const struct response_store_options *options, struct response_store **out,
                        struct quire_error *err)
{
    struct response_store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    STAILQ_INIT(&s->list);
    int status = response_db_open(&s->db, options, err);
    if (status != QUIRE_OK) {
        free(s);
        return status;
    }
    pthread_mutex_init(&s->db_mutex, NULL);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    if (pthread_create(&s->thread, NULL, write_all, s) != 0) {
        response_db_close(&s->db);
        free(s);
        return quire_fail(err, QUIRE_EXHAUSTED, "--response-store: no thread can be started");
    }
    *out = s;
    return QUIRE_OK;
}

void response_store_close(struct response_store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    response_db_close(&s->db);
    pthread_mutex_destroy(&s->db_mutex);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->work);
    free(s);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int not_found(const char *id, struct quire_error *err)
{
    return quire_fail(err, QUIRE_NOT_FOUND, "no response with the id %.*s is stored: unknown, expired or deleted",
                      RESPONSE_ID_BYTES, id);
}

static int status_of(const struct response_store *s, int code, const char *id, struct quire_error *err)
{
    switch (code) {
    case SQLITE_ROW: return QUIRE_OK;
    case SQLITE_OK:
    case SQLITE_DONE: return not_found(id, err);
    case SQLITE_NOMEM: return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    default: return quire_fail(err, QUIRE_IO, "the stored responses cannot be read: %s", sqlite3_errmsg(s->db.db));
    }
}

/* As response_id() makes them, so that no other text reaches the database. */
static bool is_id(const char *id)
{
    const size_t n = sizeof RESPONSE_ID_PREFIX - 1;
    return strncmp(id, RESPONSE_ID_PREFIX, n) == 0 && strlen(id) == n + 32 && strspn(id + n, "0123456789abcdef") == 32;
}

int response_store_find(struct response_store *s, const struct key256 *tenant, const char *id,
                        struct response_record *out, struct quire_error *err)
{
    *out = (struct response_record){.id = ""};
    if (!is_id(id))
        return not_found(id, err);
    pthread_mutex_lock(&s->db_mutex);
    flush(s);
    const int status = status_of(s, response_db_find(&s->db, tenant, id, wall_s(), out), id, err);
    pthread_mutex_unlock(&s->db_mutex);
    return status;
}

int response_store_remove(struct response_store *s, const struct key256 *tenant, const char *id,
                          struct quire_error *err)
{
    if (!is_id(id))
        return not_found(id, err);
    pthread_mutex_lock(&s->db_mutex);
    flush(s);
    const int status = status_of(s, response_db_remove(&s->db, tenant, id, wall_s()), id, err);
    pthread_mutex_unlock(&s->db_mutex);
    return status;
}

/* ---- chains ---- */

struct chain {
    char (*ids)[RESPONSE_ID_BYTES]; /* the newest first */
    size_t n, n_bytes;
};

static int too_long(const char *id, struct quire_error *err)
{
    return quire_fail(
        err, QUIRE_INVALID,
        "the chain of responses that ends with %s is longer than %d responses or %zu MiB: begin a new one", id,
        RESPONSE_MAX_CHAIN, RESPONSE_MAX_CHAIN_BYTES >> 20);
}

/* Finds all responses of a chain. db_mutex is held. Ids are random and never change, so there are no circles. */
static int find_chain(struct response_store *s, const struct key256 *tenant, const char *id, struct chain *c,
                      struct quire_error *err)
{
    const int64_t now = wall_s();
    char next[RESPONSE_ID_BYTES], previous[RESPONSE_ID_BYTES];
    snprintf(next, sizeof next, "%s", id);
    while (next[0]) {
        size_t n_bytes;
        if (c->n == RESPONSE_MAX_CHAIN || c->n_bytes > RESPONSE_MAX_CHAIN_BYTES)
            return too_long(id, err);
        const int code = response_db_size(&s->db, tenant, next, now, previous, &n_bytes);
        if (code != SQLITE_ROW)
            return status_of(s, code, next, err);
        memcpy(c->ids[c->n++], next, sizeof next);
        memcpy(next, previous, sizeof next);
        c->n_bytes += n_bytes;
    }
    return c->n_bytes > RESPONSE_MAX_CHAIN_BYTES ? too_long(id, err) : (int)QUIRE_OK;
}

/* From the oldest on. */
static int read_chain(struct response_store *s, const struct chain *c, struct buffer *items, struct quire_error *err)
{
    const int64_t now = wall_s();
    bool any = false;
    int code = response_db_begin(&s->db);
    if (code != SQLITE_OK)
        return status_of(s, code, c->ids[0], err);
    code = SQLITE_ROW;
    for (size_t i = c->n; i > 0 && code == SQLITE_ROW; i--) {
        code = response_db_turn(&s->db, c->ids[i - 1], &any, items);
        const int touched = response_db_touch(&s->db, c->ids[i - 1], now);
        code = touched == SQLITE_OK ? code : touched;
    }
    code = response_db_end(&s->db, items->failed ? SQLITE_NOMEM : code);
    return status_of(s, code, c->ids[0], err);
}

/* items NULL: only its size. */
static int use_chain(struct response_store *s, const struct key256 *tenant, const char *id, struct buffer *items,
                     size_t *n_bytes, struct quire_error *err)
{
    struct chain c = {.n = 0};
    if (!is_id(id))
        return not_found(id, err);
    c.ids = malloc(RESPONSE_MAX_CHAIN * sizeof *c.ids);
    if (!c.ids)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&s->db_mutex);
    flush(s);
    int status = find_chain(s, tenant, id, &c, err);
    if (status == QUIRE_OK && items)
        status = read_chain(s, &c, items, err);
    pthread_mutex_unlock(&s->db_mutex);
    *n_bytes = c.n_bytes;
    free(c.ids);
    return status;
}

int response_store_chain_bytes(struct response_store *s, const struct key256 *tenant, const char *id, size_t *n_bytes,
                               struct quire_error *err)
{
    return use_chain(s, tenant, id, NULL, n_bytes, err);
}

int response_store_chain(struct response_store *s, const struct key256 *tenant, const char *id, struct buffer *items,
                         struct quire_error *err)
{
    size_t n_bytes;
    return use_chain(s, tenant, id, items, &n_bytes, err);
}

void response_store_count(struct response_store *s, struct response_store_counts *out)
{
    *out = (struct response_store_counts){0};
    pthread_mutex_lock(&s->db_mutex);
    flush(s);
    response_db_count(&s->db, out);
    pthread_mutex_unlock(&s->db_mutex);
}
