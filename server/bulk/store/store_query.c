#include "server/bulk/store/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void store_prepare(struct store_query *q, struct bulk_store *s, const char *sql)
{
    *q = (struct store_query){.s = s};
    q->code = sqlite3_prepare_v2(s->db, sql, -1, &q->statement, NULL);
}

static void note(struct store_query *q, int code)
{
    if (q->code == SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE)
        q->code = code;
}

void store_bind_text(struct store_query *q, const char *text)
{
    q->at++;
    if (q->code == SQLITE_OK && text)
        note(q, sqlite3_bind_text(q->statement, q->at, text, -1, SQLITE_STATIC));
}

void store_bind(struct store_query *q, int64_t value)
{
    q->at++;
    if (q->code == SQLITE_OK)
        note(q, sqlite3_bind_int64(q->statement, q->at, value));
}

bool store_next(struct store_query *q)
{
    if (q->code != SQLITE_OK)
        return false;
    q->at = 0;
    const int code = sqlite3_step(q->statement);
    note(q, code);
    return code == SQLITE_ROW;
}

int64_t store_column(struct store_query *q)
{
    return sqlite3_column_int64(q->statement, q->at++);
}

void store_column_text(struct store_query *q, char *out, size_t n_out)
{
    const char *text = (const char *)sqlite3_column_text(q->statement, q->at++);
    snprintf(out, n_out, "%s", text ? text : "");
}

char *store_column_copy(struct store_query *q)
{
    const char *text = (const char *)sqlite3_column_text(q->statement, q->at++);
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy)
        note(q, SQLITE_NOMEM);
    return copy;
}

int store_end(struct store_query *q)
{
    sqlite3_finalize(q->statement);
    q->statement = NULL;
    return q->code;
}

int store_run(struct store_query *q)
{
    while (store_next(q)) {
    }
    return store_end(q);
}

int store_exec(struct bulk_store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

int store_commit(struct bulk_store *s, int code)
{
    if (code == SQLITE_OK)
        code = store_exec(s, "COMMIT");
    if (code != SQLITE_OK)
        store_exec(s, "ROLLBACK");
    return code;
}

int store_status(struct bulk_store *s, int code, struct quire_error *err)
{
    switch (code & 0xff) {
    case SQLITE_OK: return QUIRE_OK;
    case SQLITE_NOMEM: return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    case SQLITE_FULL:
    case SQLITE_IOERR:
        return quire_fail(err, QUIRE_UNAVAILABLE, "the disk of --batch-dir %s is full or fails: %s", s->dir,
                          sqlite3_errstr(code));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return quire_fail(err, QUIRE_IO, "%s/batches.sqlite is damaged: %s", s->dir, sqlite3_errstr(code));
    default:
        return quire_fail(err, QUIRE_IO, "%s/batches.sqlite cannot be read or written: %s", s->dir,
                          sqlite3_errstr(code));
    }
}
