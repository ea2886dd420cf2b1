/* What the files of the store share. */
#ifndef QUIRE_BULK_STORE_INTERNAL_H
#define QUIRE_BULK_STORE_INTERNAL_H

#include "server/bulk/store/store.h"

#include <sqlite3.h>

struct store_held {
    char id[BULK_ID_BYTES], tenant[BULK_TENANT_BYTES];
    uint64_t n_bytes;
};

struct bulk_store {
    char *dir;
    uint64_t max_bytes, max_tenant_bytes;
    sqlite3 *db;
    int lock; /* the locked file; -1: none */
    struct store_held *held;
    size_t n_held, held_capacity;
};

/* Every function below can follow a failure: `code` is the first SQLite code that was not SQLITE_OK. */
struct store_query {
    struct bulk_store *s;
    sqlite3_stmt *statement;
    int code, at; /* at: the parameter to bind, or the column to read, next */
};

void store_prepare(struct store_query *q, struct bulk_store *s, const char *sql);
void store_bind_text(struct store_query *q,
                     const char *text); /* NULL is allowed; must stay until the query has ended */
void store_bind(struct store_query *q, int64_t value);
/* Whether there is a row; its columns are read in order. */
bool store_next(struct store_query *q);
int64_t store_column(struct store_query *q);
void store_column_text(struct store_query *q, char *out, size_t n_out);
char *store_column_copy(struct store_query *q); /* malloc'd; NULL: null, or no memory (q->code) */
/* Ends the query. Returns its code. */
int store_end(struct store_query *q);
/* A query without rows. */
int store_run(struct store_query *q);
/* A statement without parameters. */
int store_exec(struct bulk_store *s, const char *sql);
/* Ends a transaction with COMMIT, or with ROLLBACK after a failure. */
int store_commit(struct bulk_store *s, int code);
/* QUIRE_OK for SQLITE_OK; QUIRE_UNAVAILABLE: the disk is full. */
int store_status(struct bulk_store *s, int code, struct quire_error *err);

/* ---- store_files.c ---- */
/* Its part becomes the file, and its row is added. In a transaction. */
int store_put_file(struct bulk_store *s, const struct bulk_file *f);
/* Removes the file and its row. In a transaction or alone. */
int store_drop_file(struct bulk_store *s, const char *id);

#endif
