#include "server/bulk/store/store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COLUMNS "id, tenant, filename, purpose, bytes, created, expires"
#define UNFINISHED "state IN (0, 1, 2, 5)"
#define MAX_PURGED 1000 /* at a time */

static int not_found(const char *id, struct quire_error *err)
{
    return quire_fail(err, QUIRE_NOT_FOUND, "no file has the id %.60s: unknown, expired or deleted", id);
}

static void read_file(struct store_query *q, struct bulk_file *out)
{
    *out = (struct bulk_file){.id = ""};
    store_column_text(q, out->id, sizeof out->id);
    store_column_text(q, out->tenant, sizeof out->tenant);
    store_column_text(q, out->filename, sizeof out->filename);
    out->purpose = (enum bulk_purpose)store_column(q);
    out->n_bytes = (uint64_t)store_column(q);
    out->created = store_column(q);
    out->expires = store_column(q);
}

static int64_t sum(struct bulk_store *s, const char *sql, const char *tenant, int *code)
{
    struct store_query q;
    store_prepare(&q, s, sql);
    if (tenant)
        store_bind_text(&q, tenant);
    const int64_t n = store_next(&q) ? store_column(&q) : 0;
    *code = store_end(&q);
    return n;
}

int bulk_store_hold(struct bulk_store *s, const char *tenant, const char *id, uint64_t n_bytes, struct quire_error *err)
{
    size_t i = 0;
    while (i < s->n_held && strcmp(s->held[i].id, id) != 0)
        i++;
    if (n_bytes == 0) {
        if (i < s->n_held)
            s->held[i] = s->held[--s->n_held];
        return QUIRE_OK;
    }
    if (i == s->held_capacity) {
        const size_t capacity = i ? 2 * i : 16;
        struct store_held *more = realloc(s->held, capacity * sizeof *more);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        s->held = more;
        s->held_capacity = capacity;
    }
    if (i == s->n_held) {
        s->n_held++;
        snprintf(s->held[i].id, sizeof s->held[i].id, "%s", id);
        snprintf(s->held[i].tenant, sizeof s->held[i].tenant, "%s", tenant);
    }
    s->held[i].n_bytes = n_bytes;
    return QUIRE_OK;
}

/* tenant NULL: of all. */
static uint64_t held_bytes(const struct bulk_store *s, const char *tenant)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_held; i++)
        n += !tenant || strcmp(s->held[i].tenant, tenant) == 0 ? s->held[i].n_bytes : 0;
    return n;
}

int bulk_store_has_space(struct bulk_store *s, const char *tenant, uint64_t n_bytes, struct quire_error *err)
{
    int code = SQLITE_OK;
    uint64_t used = 0;
    if (s->max_bytes)
        used = (uint64_t)sum(s, "SELECT coalesce(sum(bytes), 0) FROM files", NULL, &code);
    if (code != SQLITE_OK)
        return store_status(s, code, err);
    if (s->max_bytes && used + held_bytes(s, NULL) + n_bytes > s->max_bytes)
        return quire_fail(err, QUIRE_EXHAUSTED,
                          "the files and results of all batches would have more than the %" PRIu64
                          " bytes of --batch-max-bytes: delete files that are not needed",
                          s->max_bytes);
    if (s->max_tenant_bytes)
        used = (uint64_t)sum(s, "SELECT coalesce(sum(bytes), 0) FROM files WHERE tenant = ?", tenant, &code);
    if (code != SQLITE_OK)
        return store_status(s, code, err);
    if (s->max_tenant_bytes && used + held_bytes(s, tenant) + n_bytes > s->max_tenant_bytes)
        return quire_fail(err, QUIRE_EXHAUSTED,
                          "your files and results would have more than the %" PRIu64
                          " bytes of one tenant, a quarter of --batch-max-bytes: delete files that are not needed",
                          s->max_tenant_bytes);
    return QUIRE_OK;
}

int store_put_file(struct bulk_store *s, const struct bulk_file *f)
{
    char part[BULK_PATH_BYTES], path[BULK_PATH_BYTES];
    struct store_query q;
    bulk_store_part_path(s, f->id, part);
    bulk_store_file_path(s, f->id, path);
    /* Before its row: a row without a file would be worse than a file without a row, which the next start removes. */
    if (rename(part, path) != 0 && access(path, F_OK) != 0)
        return SQLITE_IOERR;
    store_prepare(&q, s, "INSERT OR IGNORE INTO files(" COLUMNS ") VALUES(?, ?, ?, ?, ?, ?, ?)");
    store_bind_text(&q, f->id);
    store_bind_text(&q, f->tenant);
    store_bind_text(&q, f->filename);
    store_bind(&q, f->purpose);
    store_bind(&q, (int64_t)f->n_bytes);
    store_bind(&q, f->created);
    store_bind(&q, f->expires);
    return store_run(&q);
}

int store_drop_file(struct bulk_store *s, const char *id)
{
    char path[BULK_PATH_BYTES];
    struct store_query q;
    store_prepare(&q, s, "DELETE FROM files WHERE id = ?");
    store_bind_text(&q, id);
    const int code = store_run(&q);
    bulk_store_file_path(s, id, path);
    if (code == SQLITE_OK)
        unlink(path);
    return code;
}

int bulk_store_add_file(struct bulk_store *s, const struct bulk_file *f, struct quire_error *err)
{
    char path[BULK_PATH_BYTES];
    const int code = store_put_file(s, f);
    if (code != SQLITE_OK) {
        bulk_store_file_path(s, f->id, path);
        unlink(path);
    }
    return store_status(s, code, err);
}

int bulk_store_drop_file(struct bulk_store *s, const char *id, struct quire_error *err)
{
    return store_status(s, store_drop_file(s, id), err);
}

int bulk_store_find_file(struct bulk_store *s, const char *tenant, const char *id, struct bulk_file *out,
                         struct quire_error *err)
{
    struct store_query q;
    if (!bulk_is_id(id, BULK_FILE_ID))
        return not_found(id, err);
    store_prepare(&q, s, "SELECT " COLUMNS " FROM files WHERE id = ? AND tenant = ? AND (expires = 0 OR expires > ?)");
    store_bind_text(&q, id);
    store_bind_text(&q, tenant);
    store_bind(&q, (int64_t)time(NULL));
    const bool found = store_next(&q);
    if (found)
        read_file(&q, out);
    const int status = store_status(s, store_end(&q), err);
    return status == QUIRE_OK && !found ? not_found(id, err) : status;
}

int bulk_store_remove_file(struct bulk_store *s, const char *tenant, const char *id, struct quire_error *err)
{
    struct bulk_file f;
    struct store_query q;
    char user[BULK_ID_BYTES] = "";
    int status = bulk_store_find_file(s, tenant, id, &f, err);
    if (status != QUIRE_OK)
        return status;
    if (f.purpose == BULK_MESSAGES)
        return not_found(id, err);
    store_prepare(&q, s, "SELECT id FROM batches WHERE input = ? AND " UNFINISHED " LIMIT 1");
    store_bind_text(&q, id);
    if (store_next(&q))
        store_column_text(&q, user, sizeof user);
    status = store_status(s, store_end(&q), err);
    if (status == QUIRE_OK && user[0])
        return quire_fail(err, QUIRE_INVALID, "the file is the input of %s, which has not ended: cancel it first",
                          user);
    return status == QUIRE_OK ? store_status(s, store_drop_file(s, id), err) : status;
}

/* The sequence number of an id; 0: unknown. */
static int64_t place_of(struct bulk_store *s, const char *tenant, const char *id, int *code)
{
    struct store_query q;
    store_prepare(&q, s, "SELECT seq FROM files WHERE id = ? AND tenant = ?");
    store_bind_text(&q, id);
    store_bind_text(&q, tenant);
    const int64_t seq = store_next(&q) ? store_column(&q) : 0;
    *code = store_end(&q);
    return seq;
}

int bulk_store_list_files(struct bulk_store *s, const char *tenant, const struct bulk_page *page,
                          struct bulk_file **out, size_t *n, bool *has_more, struct quire_error *err)
{
    static const char upward[] = "SELECT " COLUMNS " FROM files WHERE tenant = ?1 AND seq > ?2 AND (expires = 0 OR "
                                 "expires > ?4) AND (purpose = ?5 OR (?5 < 0 AND purpose < 2)) ORDER BY seq LIMIT ?3";
    static const char downward[] = "SELECT " COLUMNS " FROM files WHERE tenant = ?1 AND seq < ?2 AND (expires = 0 OR "
                                   "expires > ?4) AND (purpose = ?5 OR (?5 < 0 AND purpose < 2)) "
                                   "ORDER BY seq DESC LIMIT ?3";
    struct store_query q;
    int code = SQLITE_OK;
    int64_t from = page->ascending ? 0 : INT64_MAX;
    *n = 0;
    *has_more = false;
    *out = calloc((size_t)page->limit + 1, sizeof **out);
    if (!*out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (page->after && !(from = place_of(s, tenant, page->after, &code)) && code == SQLITE_OK)
        return not_found(page->after, err);
    store_prepare(&q, s, page->ascending ? upward : downward);
    store_bind_text(&q, tenant);
    store_bind(&q, from);
    store_bind(&q, (int64_t)page->limit + 1);
    store_bind(&q, (int64_t)time(NULL));
    store_bind(&q, page->purpose);
    while (*n <= page->limit && store_next(&q))
        read_file(&q, &(*out)[(*n)++]);
    *has_more = *n > page->limit;
    *n -= *has_more;
    return store_status(s, store_end(&q), err);
}

int bulk_store_expire(struct bulk_store *s, int64_t now_s, struct quire_error *err)
{
    struct store_query q;
    char(*ids)[BULK_ID_BYTES] = calloc(MAX_PURGED, sizeof *ids);
    size_t n = 0;
    if (!ids)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    store_prepare(&q, s,
                  "SELECT id FROM files WHERE expires > 0 AND expires <= ? AND NOT EXISTS (SELECT 1 FROM batches WHERE "
                  "input = files.id AND " UNFINISHED ") LIMIT ?");
    store_bind(&q, now_s);
    store_bind(&q, MAX_PURGED);
    while (n < MAX_PURGED && store_next(&q))
        store_column_text(&q, ids[n++], BULK_ID_BYTES);
    int code = store_end(&q);
    for (size_t i = 0; i < n && code == SQLITE_OK; i++)
        code = store_drop_file(s, ids[i]);
    free(ids);
    return store_status(s, code, err);
}
