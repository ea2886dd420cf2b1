#include "server/gateway/account/ledger_db.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

#define VERSION 1
#define APPLICATION 0x514C4544 /* "QLED": marks the file as one of these */

/* A killed process loses nothing that was committed; a machine that loses power may lose the last seconds. */
static const char set_up[] = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                             "PRAGMA trusted_schema=OFF; PRAGMA journal_size_limit=8388608;";
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS keys(id TEXT PRIMARY KEY, name TEXT NOT NULL, tenant TEXT NOT NULL,"
    " organisation TEXT NOT NULL, hash BLOB NOT NULL, old_hash BLOB NOT NULL, old_until INTEGER NOT NULL,"
    " created INTEGER NOT NULL, used INTEGER NOT NULL, revoked INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS budgets(kind INTEGER, name TEXT, budget INTEGER NOT NULL,"
    " PRIMARY KEY(kind, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS usage(day INTEGER, organisation TEXT, tenant TEXT, key TEXT, model TEXT, layer TEXT,"
    " requests INTEGER NOT NULL, input INTEGER NOT NULL, cached_input INTEGER NOT NULL, output INTEGER NOT NULL,"
    " cost INTEGER NOT NULL, saved INTEGER NOT NULL, PRIMARY KEY(day, organisation, tenant, key, model, layer)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS state(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;" /* older versions ignore it */
    "COMMIT;";

#define MOST "9223372036854775807" /* SQLite's largest integer: beyond it sums become floating-point numbers */
#define SUM(column) \
    column " = CASE WHEN " column " > " MOST " - excluded." column " THEN " MOST " ELSE " column " + excluded." column \
           " END"

static const char *const texts[LEDGER_N_STATEMENTS] = {
    [LEDGER_BEGIN] = "BEGIN IMMEDIATE",
    [LEDGER_COMMIT] = "COMMIT",
    [LEDGER_ROLLBACK] = "ROLLBACK",
    [LEDGER_PUT_KEY] = "INSERT INTO keys VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT(id) DO UPDATE SET"
                       " hash = excluded.hash, old_hash = excluded.old_hash, old_until = excluded.old_until,"
                       " revoked = excluded.revoked",
    [LEDGER_USED] = "UPDATE keys SET used = max(used, ?2) WHERE id = ?1",
    [LEDGER_PUT_BUDGET] = "INSERT OR REPLACE INTO budgets VALUES(?1, ?2, ?3)",
    [LEDGER_ADD_USAGE] = "INSERT INTO usage VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                         " ON CONFLICT DO UPDATE SET " SUM("requests") ", " SUM("input") ", " SUM(
                             "cached_input") ", " SUM("output") ", " SUM("cost") ", " SUM("saved"),
    [LEDGER_KEYS] = "SELECT id, name, tenant, organisation, hash, old_hash, old_until, created, used, revoked FROM keys"
                    " ORDER BY created, id",
    [LEDGER_BUDGETS] = "SELECT kind, name, budget FROM budgets",
    [LEDGER_SPENT] = "SELECT day, organisation, tenant, key, '', '', 0, 0, 0, 0, cost, 0 FROM usage WHERE day = ?1",
    [LEDGER_USAGE] =
        "SELECT day, organisation, tenant, key, model, layer, requests, input, cached_input, output, cost, saved"
        " FROM usage WHERE day BETWEEN ?1 AND ?2 AND (?3 = '' OR organisation = ?3) AND (?4 = '' OR tenant = ?4)"
        " AND (?5 = '' OR key = ?5) ORDER BY day, organisation, tenant, key, model, layer",
    [LEDGER_PUT_STATE] = "INSERT OR REPLACE INTO state VALUES(?1, ?2)",
    [LEDGER_STATES] =
        "SELECT name, value FROM state WHERE length(CAST(name AS BLOB)) <= 128 AND length(value) <= 1048576",
};

/* ---- opening -------------------------------------------------------------------------------- */

static int64_t pragma_number(sqlite3 *db, const char *text)
{
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

/* Why the file cannot be used; NULL: it can. */
static const char *check(sqlite3 *db)
{
    char mark[96];
    if (sqlite3_exec(db, set_up, NULL, NULL, NULL) != SQLITE_OK)
        return sqlite3_errcode(db) == SQLITE_BUSY ? "is open in another process; each gateway needs a file of its own"
                                                  : sqlite3_errmsg(db);
    const int64_t application = pragma_number(db, "PRAGMA application_id");
    const int64_t version = pragma_number(db, "PRAGMA user_version");
    const int64_t n_tables = pragma_number(db, "SELECT count(*) FROM sqlite_schema");
    if (application < 0 || version < 0 || n_tables < 0)
        return sqlite3_errcode(db) == SQLITE_BUSY ? "is open in another process; each gateway needs a file of its own"
                                                  : sqlite3_errmsg(db);
    if (n_tables > 0 && application != APPLICATION)
        return "belongs to another program; name another file";
    if (n_tables > 0 && version != VERSION)
        return "has another version; name another file";
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION, VERSION);
    if (sqlite3_exec(db, mark, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
        return sqlite3_errcode(db) == SQLITE_BUSY ? "is open in another process; each gateway needs a file of its own"
                                                  : sqlite3_errmsg(db);
    return NULL;
}

static const char *open_file(struct ledger_db *d, const char *path)
{
    /* SQLite gives its companion files the same mode. */
    const char *why = path ? file_make_private(path) : NULL;
    if (why)
        return why;
    if (sqlite3_open_v2(path ? path : ":memory:", &d->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return d->db ? sqlite3_errmsg(d->db) : "out of memory";
    sqlite3_busy_timeout(d->db, 2000); /* a process that ends is still writing its last usage */
    why = check(d->db);
    for (size_t i = 0; i < LEDGER_N_STATEMENTS && !why; i++)
        if (sqlite3_prepare_v3(d->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &d->statements[i], NULL) != SQLITE_OK)
            why = sqlite3_errmsg(d->db);
    return why;
}

int ledger_db_open(struct ledger_db *d, const char *path, struct quire_error *err)
{
    const char *why = open_file(d, path);
    const int status = why ? quire_fail(err, QUIRE_IO, "--ledger %s: %s", path ? path : "(memory)", why) : QUIRE_OK;
    if (why)
        ledger_db_close(d);
    return status;
}

void ledger_db_close(struct ledger_db *d)
{
    for (size_t i = 0; i < LEDGER_N_STATEMENTS; i++)
        sqlite3_finalize(d->statements[i]);
    sqlite3_close(d->db);
    *d = (struct ledger_db){0};
}

/* ---- writing -------------------------------------------------------------------------------- */

static void rewind_statement(sqlite3_stmt *s)
{
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

/* Runs one to its end. */
static int finish(sqlite3_stmt *s)
{
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
    }
    rewind_statement(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

static void bind_u64(sqlite3_stmt *s, int at, uint64_t n)
{
    sqlite3_bind_int64(s, at, n < INT64_MAX ? (int64_t)n : INT64_MAX);
}

static void bind_hash(sqlite3_stmt *s, int at, const struct key256 *hash)
{
    sqlite3_bind_blob(s, at, hash->bytes, sizeof hash->bytes, SQLITE_STATIC);
}

int ledger_db_begin(struct ledger_db *d)
{
    return finish(d->statements[LEDGER_BEGIN]);
}

int ledger_db_end(struct ledger_db *d, int code)
{
    const int ended = code == SQLITE_OK ? finish(d->statements[LEDGER_COMMIT]) : SQLITE_OK;
    if (!sqlite3_get_autocommit(d->db)) /* some errors roll back by themselves */
        finish(d->statements[LEDGER_ROLLBACK]);
    return ended == SQLITE_OK ? code : ended;
}

int ledger_db_put_key(struct ledger_db *d, const struct ledger_key_row *key)
{
    sqlite3_stmt *s = d->statements[LEDGER_PUT_KEY];
    bind_text(s, 1, key->id);
    bind_text(s, 2, key->name);
    bind_text(s, 3, key->tenant);
    bind_text(s, 4, key->organisation);
    bind_hash(s, 5, &key->hash);
    bind_hash(s, 6, &key->old_hash);
    sqlite3_bind_int64(s, 7, key->old_until);
    sqlite3_bind_int64(s, 8, key->created);
    sqlite3_bind_int64(s, 9, key->used);
    sqlite3_bind_int64(s, 10, key->revoked);
    return finish(s);
}

int ledger_db_put_budget(struct ledger_db *d, enum payer_kind kind, const char *name, bool has_budget, uint64_t budget)
{
    sqlite3_stmt *s = d->statements[LEDGER_PUT_BUDGET];
    sqlite3_bind_int(s, 1, (int)kind);
    bind_text(s, 2, name);
    if (has_budget)
        bind_u64(s, 3, budget);
    else
        sqlite3_bind_int64(s, 3, -1);
    return finish(s);
}

int ledger_db_add_usage(struct ledger_db *d, const struct ledger_usage_row *row)
{
    const struct ledger_sums *sums = &row->sums;
    const uint64_t numbers[] = {sums->requests, sums->input, sums->cached_input, sums->output, sums->cost, sums->saved};
    sqlite3_stmt *s = d->statements[LEDGER_ADD_USAGE], *used = d->statements[LEDGER_USED];
    sqlite3_bind_int64(s, 1, row->day);
    bind_text(s, 2, row->organisation);
    bind_text(s, 3, row->tenant);
    bind_text(s, 4, row->key);
    bind_text(s, 5, row->model);
    bind_text(s, 6, row->layer);
    for (int i = 0; i < 6; i++)
        bind_u64(s, 7 + i, numbers[i]);
    const int code = finish(s);
    if (code != SQLITE_OK || !row->key[0])
        return code;
    bind_text(used, 1, row->key);
    sqlite3_bind_int64(used, 2, row->used);
    return finish(used);
}

int ledger_db_put_state(struct ledger_db *d, const char *name, const void *bytes, size_t n)
{
    sqlite3_stmt *s = d->statements[LEDGER_PUT_STATE];
    bind_text(s, 1, name);
    sqlite3_bind_blob64(s, 2, bytes, n, SQLITE_STATIC);
    return finish(s);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A damaged file may hold anything: a text that is too long is cut, a hash of another length is zero. */
static void column_name(sqlite3_stmt *s, int at, char *out, size_t n)
{
    const char *text = (const char *)sqlite3_column_text(s, at);
    snprintf(out, n, "%s", text ? text : "");
}

static void column_hash(sqlite3_stmt *s, int at, struct key256 *out)
{
    const void *bytes = sqlite3_column_blob(s, at);
    *out = (struct key256){{0}};
    if (bytes && sqlite3_column_bytes(s, at) == sizeof out->bytes)
        memcpy(out->bytes, bytes, sizeof out->bytes);
}

static uint64_t column_u64(sqlite3_stmt *s, int at)
{
    const int64_t n = sqlite3_column_int64(s, at);
    return n > 0 ? (uint64_t)n : 0;
}

int ledger_db_keys(struct ledger_db *d, bool (*each)(void *context, const struct ledger_key_row *key), void *context)
{
    sqlite3_stmt *s = d->statements[LEDGER_KEYS];
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        struct ledger_key_row row;
        column_name(s, 0, row.id, sizeof row.id);
        column_name(s, 1, row.name, sizeof row.name);
        column_name(s, 2, row.tenant, sizeof row.tenant);
        column_name(s, 3, row.organisation, sizeof row.organisation);
        column_hash(s, 4, &row.hash);
        column_hash(s, 5, &row.old_hash);
        row.old_until = sqlite3_column_int64(s, 6);
        row.created = sqlite3_column_int64(s, 7);
        row.used = sqlite3_column_int64(s, 8);
        row.revoked = sqlite3_column_int64(s, 9);
        if (!each(context, &row)) {
            code = SQLITE_ABORT;
            break;
        }
    }
    rewind_statement(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int ledger_db_budgets(struct ledger_db *d,
                      bool (*each)(void *context, enum payer_kind kind, const char *name, uint64_t budget),
                      void *context)
{
    sqlite3_stmt *s = d->statements[LEDGER_BUDGETS];
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        char name[PAYER_MAX_NAME + 1];
        const int kind = sqlite3_column_int(s, 0);
        column_name(s, 1, name, sizeof name);
        if (kind < 0 || kind >= PAYER_KINDS || sqlite3_column_int64(s, 2) < 0)
            continue; /* no budget any more */
        if (!each(context, (enum payer_kind)kind, name, column_u64(s, 2))) {
            code = SQLITE_ABORT;
            break;
        }
    }
    rewind_statement(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int read_usage(sqlite3_stmt *s, bool (*each)(void *context, const struct ledger_usage_row *row), void *context)
{
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        const char *names[5];
        for (int i = 0; i < 5; i++) {
            const char *text = (const char *)sqlite3_column_text(s, 1 + i);
            names[i] = text ? text : "";
        }
        const struct ledger_usage_row row = {
            .day = sqlite3_column_int64(s, 0),
            .organisation = names[0],
            .tenant = names[1],
            .key = names[2],
            .model = names[3],
            .layer = names[4],
            .sums = {column_u64(s, 6), column_u64(s, 7), column_u64(s, 8), column_u64(s, 9), column_u64(s, 10),
                     column_u64(s, 11)},
        };
        if (!each(context, &row)) {
            code = SQLITE_ABORT;
            break;
        }
    }
    rewind_statement(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int ledger_db_spent(struct ledger_db *d, int64_t day, bool (*each)(void *context, const struct ledger_usage_row *row),
                    void *context)
{
    sqlite3_bind_int64(d->statements[LEDGER_SPENT], 1, day);
    return read_usage(d->statements[LEDGER_SPENT], each, context);
}

int ledger_db_usage(struct ledger_db *d, const struct ledger_question *question,
                    bool (*each)(void *context, const struct ledger_usage_row *row), void *context)
{
    sqlite3_stmt *s = d->statements[LEDGER_USAGE];
    sqlite3_bind_int64(s, 1, question->from);
    sqlite3_bind_int64(s, 2, question->to);
    bind_text(s, 3, question->organisation);
    bind_text(s, 4, question->tenant);
    bind_text(s, 5, question->key);
    return read_usage(s, each, context);
}

int ledger_db_states(struct ledger_db *d, bool (*each)(void *context, const char *name, const void *bytes, size_t n),
                     void *context)
{
    sqlite3_stmt *s = d->statements[LEDGER_STATES];
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0);
        const void *bytes = sqlite3_column_blob(s, 1);
        if (!each(context, name ? name : "", bytes ? bytes : "", (size_t)sqlite3_column_bytes(s, 1))) {
            code = SQLITE_ABORT;
            break;
        }
    }
    rewind_statement(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}
