#include "server/bulk/run/results_db.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define VERSION 1
#define APPLICATION 0x51424C4B /* "QBLK": marks the file as one of these */

/* A killed process loses nothing that was committed; a machine that loses power may lose the last seconds, whose lines run
 * again. */
static const char set_up[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF;"
                             "PRAGMA journal_size_limit=8388608;";
/* The text comes last, so that the other columns are read without it. */
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS batch(id INTEGER PRIMARY KEY CHECK(id = 0), digest INTEGER NOT NULL, lines INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS results(line INTEGER PRIMARY KEY, outcome INTEGER NOT NULL, input INTEGER NOT NULL,"
    " cached INTEGER NOT NULL, output INTEGER NOT NULL, cost INTEGER NOT NULL, json BLOB NOT NULL);"
    "COMMIT;";

static int64_t number(sqlite3 *db, const char *text)
{
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

static int fail(sqlite3 *db, const char *path, struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "%s: %s", path, db ? sqlite3_errmsg(db) : "out of memory");
}

/* ---- opening -------------------------------------------------------------------------------- */

static int lock(struct results_db *d, const char *path, struct quire_error *err)
{
    const char *why = file_make_private(path);
    if (why)
        return quire_fail(err, QUIRE_IO, "%s: %s", path, why);
    d->lock = open(path, O_RDONLY | O_CLOEXEC);
    if (d->lock >= 0 && flock(d->lock, LOCK_EX | LOCK_NB) == 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_IO, "%s: %s", path,
                      errno == EWOULDBLOCK ? "is in use by another process" : strerror(errno));
}

static int check_kind(sqlite3 *db, const char *path, struct quire_error *err)
{
    char mark[96];
    const int64_t application = number(db, "PRAGMA application_id"), version = number(db, "PRAGMA user_version");
    const int64_t n_tables = number(db, "SELECT count(*) FROM sqlite_schema");
    if (application < 0 || version < 0 || n_tables < 0)
        return fail(db, path, err);
    if (n_tables > 0 && application != APPLICATION)
        return quire_fail(err, QUIRE_INVALID, "%s: belongs to another program; name another file", path);
    if (n_tables > 0 && version != VERSION)
        return quire_fail(err, QUIRE_INVALID, "%s: has version %lld; this program reads version %d", path,
                          (long long)version, VERSION);
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION, VERSION);
    if (sqlite3_exec(db, set_up, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, mark, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
        return fail(db, path, err);
    return QUIRE_OK;
}

static int check_batch(sqlite3 *db, const char *path, uint64_t digest, uint32_t n_lines, struct quire_error *err)
{
    char text[128];
    snprintf(text, sizeof text, "INSERT OR IGNORE INTO batch VALUES(0, %lld, %u)", (long long)(int64_t)digest, n_lines);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        return fail(db, path, err);
    if ((uint64_t)number(db, "SELECT digest FROM batch") != digest || number(db, "SELECT lines FROM batch") != n_lines)
        return quire_fail(err, QUIRE_INVALID, "%s: has results of another input; remove it or name another file", path);
    return QUIRE_OK;
}

int results_db_open(struct results_db *d, const char *path, uint64_t digest, uint32_t n_lines, struct quire_error *err)
{
    static const char put[] = "INSERT OR IGNORE INTO results VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    *d = (struct results_db){.lock = -1};
    int status = lock(d, path, err);
    if (status != QUIRE_OK)
        return status;
    if (sqlite3_open_v2(path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return fail(d->db, path, err);
    sqlite3_busy_timeout(d->db, 2000);
    status = check_kind(d->db, path, err);
    if (status == QUIRE_OK)
        status = check_batch(d->db, path, digest, n_lines, err);
    if (status == QUIRE_OK && sqlite3_prepare_v3(d->db, put, -1, SQLITE_PREPARE_PERSISTENT, &d->put, NULL) != SQLITE_OK)
        status = fail(d->db, path, err);
    return status;
}

/* SQLite first: closing a descriptor of the file drops its locks. */
void results_db_close(struct results_db *d)
{
    sqlite3_finalize(d->put);
    sqlite3_close(d->db);
    if (d->lock >= 0)
        close(d->lock);
    *d = (struct results_db){.lock = -1};
}

int results_db_load(struct results_db *d, uint32_t n_lines, void (*found)(void *context, const struct results_row *row),
                    void *context, struct quire_error *err)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(d->db, "SELECT line, outcome, input, cached, output, cost FROM results", -1, &s,
                                  NULL);
    while (code == SQLITE_OK && (code = sqlite3_step(s)) == SQLITE_ROW) {
        const int64_t line = sqlite3_column_int64(s, 0), outcome = sqlite3_column_int64(s, 1);
        const struct results_row row = {
            .line = (uint32_t)line,
            .outcome = (enum bulk_outcome)outcome,
            .tokens = {(uint32_t)sqlite3_column_int64(s, 2), (uint32_t)sqlite3_column_int64(s, 3),
                       (uint32_t)sqlite3_column_int64(s, 4), (uint64_t)sqlite3_column_int64(s, 5)},
        };
        code = SQLITE_OK;
        if (line < 0 || line >= n_lines || outcome < 0 || outcome >= BULK_OUTCOMES)
            code = SQLITE_CORRUPT;
        else
            found(context, &row);
    }
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? QUIRE_OK
                               : quire_fail(err, QUIRE_IO, "the results cannot be read: %s", sqlite3_errstr(code));
}

/* ---- writing -------------------------------------------------------------------------------- */

int results_db_begin(struct results_db *d)
{
    return sqlite3_exec(d->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
}

int results_db_put(struct results_db *d, const struct results_row *row)
{
    sqlite3_bind_int64(d->put, 1, row->line);
    sqlite3_bind_int64(d->put, 2, row->outcome);
    sqlite3_bind_int64(d->put, 3, row->tokens.input);
    sqlite3_bind_int64(d->put, 4, row->tokens.cached);
    sqlite3_bind_int64(d->put, 5, row->tokens.output);
    sqlite3_bind_int64(d->put, 6, (int64_t)row->tokens.cost);
    int code = sqlite3_bind_blob64(d->put, 7, row->json, row->n_json, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(d->put);
    sqlite3_reset(d->put);
    sqlite3_clear_bindings(d->put);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int results_db_end(struct results_db *d, int code)
{
    if (code == SQLITE_OK)
        code = sqlite3_exec(d->db, "COMMIT", NULL, NULL, NULL);
    if (code != SQLITE_OK && !sqlite3_get_autocommit(d->db))
        sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

/* ---- the output ----------------------------------------------------------------------------- */

static int write_rows(sqlite3 *db, const char *path, unsigned outcomes, FILE *to, struct quire_error *err)
{
    sqlite3_stmt *s = NULL;
    bool is_written = true;
    int code = sqlite3_prepare_v2(db, "SELECT json FROM results WHERE (?1 >> outcome) & 1 ORDER BY line", -1, &s, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_int64(s, 1, outcomes);
    while (is_written && code == SQLITE_OK && (code = sqlite3_step(s)) == SQLITE_ROW) {
        const size_t n = (size_t)sqlite3_column_bytes(s, 0);
        is_written = fwrite(sqlite3_column_blob(s, 0), 1, n, to) == n && fputc('\n', to) != EOF;
        code = SQLITE_OK;
    }
    sqlite3_finalize(s);
    if (!is_written || fflush(to) != 0)
        return quire_fail(err, QUIRE_IO, "the output cannot be written: %s", strerror(errno));
    return code == SQLITE_DONE ? QUIRE_OK : fail(db, path, err);
}

int results_db_write(const char *path, unsigned outcomes, FILE *to, struct quire_error *err)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        const int status = fail(db, path, err);
        sqlite3_close(db);
        return status;
    }
    sqlite3_busy_timeout(db, 2000);
    const int status = write_rows(db, path, outcomes, to, err);
    sqlite3_close(db);
    return status;
}
