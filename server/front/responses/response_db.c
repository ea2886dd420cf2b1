#include "server/front/responses/response_db.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

#define VERSION 1
#define APPLICATION 0x51524550 /* "QREP": marks the file as one of these */
/* A response's row, its index entries, and the unused part of its last page. */
#define OVERHEAD_BYTES 4096
#define MAX_ROW_BYTES (128 << 20)

/* Deleted text is overwritten. A killed process loses nothing; a machine that loses power may lose the last
 * responses, each as a whole. */
static const char set_up[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF;"
                             "PRAGMA secure_delete=ON; PRAGMA journal_size_limit=8388608;";
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS responses(id TEXT PRIMARY KEY, tenant BLOB NOT NULL, previous TEXT NOT NULL,"
    " used INTEGER NOT NULL, expires INTEGER NOT NULL, bytes INTEGER NOT NULL, output_at INTEGER NOT NULL,"
    " output_bytes INTEGER NOT NULL, input BLOB NOT NULL, reply BLOB NOT NULL);"
    "CREATE INDEX IF NOT EXISTS by_use ON responses(tenant, used);"
    "CREATE INDEX IF NOT EXISTS by_expiry ON responses(expires);"
    "CREATE TABLE IF NOT EXISTS sizes(tenant BLOB PRIMARY KEY, n INTEGER NOT NULL, bytes INTEGER NOT NULL);"
    "CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON responses BEGIN"
    " INSERT INTO sizes VALUES(new.tenant, 1, new.bytes)"
    " ON CONFLICT(tenant) DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes; END;"
    "CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON responses BEGIN"
    " UPDATE sizes SET n = n - 1, bytes = bytes - old.bytes WHERE tenant = old.tenant;"
    " DELETE FROM sizes WHERE tenant = old.tenant AND n <= 0; END;"
    "COMMIT;";

static const char *const texts[RESPONSE_N_STATEMENTS] = {
    [RESPONSE_BEGIN] = "BEGIN IMMEDIATE",
    [RESPONSE_COMMIT] = "COMMIT",
    [RESPONSE_ROLLBACK] = "ROLLBACK",
    [RESPONSE_PUT] = "INSERT INTO responses VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [RESPONSE_FIND] = "SELECT previous, output_at, output_bytes, input, reply FROM responses "
                      "WHERE id = ?1 AND tenant = ?2 AND expires > ?3",
    [RESPONSE_SIZE] = "SELECT previous, length(input) + output_bytes FROM responses "
                      "WHERE id = ?1 AND tenant = ?2 AND expires > ?3",
    [RESPONSE_TURN] = "SELECT input, substr(reply, output_at + 1, output_bytes) FROM responses WHERE id = ?1",
    [RESPONSE_TOUCH] = "UPDATE responses SET used = ?2, expires = ?3 WHERE id = ?1",
    [RESPONSE_REMOVE] = "DELETE FROM responses WHERE id = ?1 AND tenant = ?2 AND expires > ?3",
    [RESPONSE_EXPIRE] =
        "DELETE FROM responses WHERE rowid IN (SELECT rowid FROM responses WHERE expires <= ?1 LIMIT 64)",
    [RESPONSE_OF_TENANT] = "SELECT bytes FROM sizes WHERE tenant = ?1",
    [RESPONSE_OF_ALL] = "SELECT coalesce(sum(bytes), 0), coalesce(sum(n), 0) FROM sizes",
    [RESPONSE_EVICT] = "DELETE FROM responses WHERE rowid = "
                       "(SELECT rowid FROM responses WHERE tenant = ?1 ORDER BY used LIMIT 1)",
    [RESPONSE_EVICT_ANY] = "DELETE FROM responses WHERE rowid = (SELECT rowid FROM responses WHERE tenant = "
                           "(SELECT tenant FROM sizes ORDER BY bytes DESC LIMIT 1) ORDER BY used LIMIT 1)",
};

/* ---- statements ----------------------------------------------------------------------------- */

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

static void bind_key(sqlite3_stmt *s, int at, const struct key256 *key)
{
    sqlite3_bind_blob(s, at, key->bytes, sizeof key->bytes, SQLITE_STATIC);
}

static void bind_id(sqlite3_stmt *s, int at, const char *id)
{
    sqlite3_bind_text(s, at, id, -1, SQLITE_STATIC);
}

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

/* Returns why the file cannot be used, or NULL. */
static const char *check(sqlite3 *db)
{
    char mark[96];
    const int64_t application = pragma_number(db, "PRAGMA application_id");
    const int64_t version = pragma_number(db, "PRAGMA user_version");
    const int64_t n_tables = pragma_number(db, "SELECT count(*) FROM sqlite_schema");
    if (application < 0 || version < 0 || n_tables < 0)
        return sqlite3_errmsg(db);
    if (n_tables > 0 && application != APPLICATION)
        return "belongs to another program: name another file";
    if (n_tables > 0 && version != VERSION)
        return "has another version: name another file";
    snprintf(mark, sizeof mark, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION, VERSION);
    if (sqlite3_exec(db, set_up, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, mark, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
        return sqlite3_errmsg(db);
    return NULL;
}

static int fail(struct response_db *d, const char *why, struct quire_error *err)
{
    const char *path = d->options.path;
    const int status = quire_fail(err, QUIRE_IO, "--response-store %s: %s", path ? path : "(memory)", why);
    response_db_close(d);
    return status;
}

int response_db_open(struct response_db *d, const struct response_store_options *options, struct quire_error *err)
{
    d->options = *options;
    /* SQLite gives its companion files the same mode. */
    const char *why = options->path ? file_make_private(options->path) : NULL;
    if (why)
        return fail(d, why, err);
    int code = sqlite3_open_v2(options->path ? options->path : ":memory:", &d->db,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return fail(d, d->db ? sqlite3_errmsg(d->db) : "out of memory", err);
    sqlite3_busy_timeout(d->db, 1000);
    sqlite3_limit(d->db, SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES);
    why = check(d->db);
    for (size_t i = 0; i < RESPONSE_N_STATEMENTS && !why; i++)
        if (sqlite3_prepare_v3(d->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &d->statements[i], NULL) != SQLITE_OK)
            why = sqlite3_errmsg(d->db);
    if (why)
        return fail(d, why, err);
    d->used = pragma_number(d->db, "SELECT coalesce(max(used), 0) FROM responses");
    return QUIRE_OK;
}

void response_db_close(struct response_db *d)
{
    for (size_t i = 0; i < RESPONSE_N_STATEMENTS; i++)
        sqlite3_finalize(d->statements[i]);
    sqlite3_close(d->db);
    *d = (struct response_db){0};
}

/* ---- operations ----------------------------------------------------------------------------- */

int response_db_begin(struct response_db *d)
{
    return finish(d->statements[RESPONSE_BEGIN]);
}

int response_db_end(struct response_db *d, int code)
{
    const bool ok = code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE;
    int ended = ok ? finish(d->statements[RESPONSE_COMMIT]) : SQLITE_OK;
    if (!sqlite3_get_autocommit(d->db)) /* some errors roll back by themselves */
        finish(d->statements[RESPONSE_ROLLBACK]);
    return ended == SQLITE_OK ? code : ended;
}

int response_db_expire(struct response_db *d, int64_t now_s)
{
    sqlite3_bind_int64(d->statements[RESPONSE_EXPIRE], 1, now_s);
    return finish(d->statements[RESPONSE_EXPIRE]);
}

/* tenant NULL: of all. */
static uint64_t bytes_of(struct response_db *d, const struct key256 *tenant)
{
    sqlite3_stmt *s = d->statements[tenant ? RESPONSE_OF_TENANT : RESPONSE_OF_ALL];
    if (tenant)
        bind_key(s, 1, tenant);
    const int64_t n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    rewind_statement(s);
    return n > 0 ? (uint64_t)n : 0;
}

/* Removes responses until n more bytes are within the limit: of this tenant, or of all if it is NULL. */
static int make_space(struct response_db *d, const struct key256 *tenant, uint64_t n)
{
    const uint64_t limit = tenant ? d->options.max_tenant_bytes : d->options.max_bytes;
    while (bytes_of(d, tenant) + n > limit) {
        sqlite3_stmt *s = d->statements[tenant ? RESPONSE_EVICT : RESPONSE_EVICT_ANY];
        if (tenant)
            bind_key(s, 1, tenant);
        const int code = finish(s);
        if (code != SQLITE_OK)
            return code;
        if (sqlite3_changes(d->db) == 0)
            return SQLITE_FULL;
    }
    return SQLITE_OK;
}

int response_db_put(struct response_db *d, const struct response_record *r, int64_t now_s)
{
    sqlite3_stmt *s = d->statements[RESPONSE_PUT];
    const uint64_t n = r->input.n + r->reply.n + OVERHEAD_BYTES;
    if (n > d->options.max_tenant_bytes || n > d->options.max_bytes || n > MAX_ROW_BYTES)
        return SQLITE_TOOBIG;
    int code = response_db_expire(d, now_s);
    if (code == SQLITE_OK)
        code = make_space(d, &r->tenant, n);
    if (code == SQLITE_OK)
        code = make_space(d, NULL, n);
    if (code != SQLITE_OK)
        return code;
    bind_id(s, 1, r->id);
    bind_key(s, 2, &r->tenant);
    bind_id(s, 3, r->previous);
    sqlite3_bind_int64(s, 4, ++d->used);
    sqlite3_bind_int64(s, 5, now_s + d->options.ttl_s);
    sqlite3_bind_int64(s, 6, (int64_t)n);
    sqlite3_bind_int64(s, 7, (int64_t)r->output_at);
    sqlite3_bind_int64(s, 8, (int64_t)r->n_output);
    sqlite3_bind_blob64(s, 9, r->input.data ? r->input.data : "", r->input.n, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 10, r->reply.data, r->reply.n, SQLITE_STATIC);
    return finish(s);
}

static void read_previous(sqlite3_stmt *s, char out[RESPONSE_ID_BYTES])
{
    const char *previous = (const char *)sqlite3_column_text(s, 0);
    snprintf(out, RESPONSE_ID_BYTES, "%s", previous ? previous : "");
}

static void read_row(sqlite3_stmt *s, const char *id, struct response_record *out)
{
    snprintf(out->id, sizeof out->id, "%s", id);
    read_previous(s, out->previous);
    out->output_at = (size_t)sqlite3_column_int64(s, 1);
    out->n_output = (size_t)sqlite3_column_int64(s, 2);
    buffer_append(&out->input, sqlite3_column_blob(s, 3), (size_t)sqlite3_column_bytes(s, 3));
    buffer_append(&out->reply, sqlite3_column_blob(s, 4), (size_t)sqlite3_column_bytes(s, 4));
}

/* A damaged file must not make the server read outside of a reply. */
static bool is_sound(const struct response_record *r)
{
    return !r->input.failed && !r->reply.failed && r->output_at <= r->reply.n &&
           r->n_output <= r->reply.n - r->output_at;
}

int response_db_find(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s,
                     struct response_record *out)
{
    sqlite3_stmt *s = d->statements[RESPONSE_FIND];
    bind_id(s, 1, id);
    bind_key(s, 2, tenant);
    sqlite3_bind_int64(s, 3, now_s);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        read_row(s, id, out);
        out->tenant = *tenant;
        if (!is_sound(out))
            code = out->input.failed || out->reply.failed ? SQLITE_NOMEM : SQLITE_CORRUPT;
    }
    rewind_statement(s);
    return code;
}

int response_db_size(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s,
                     char previous[RESPONSE_ID_BYTES], size_t *n_bytes)
{
    sqlite3_stmt *s = d->statements[RESPONSE_SIZE];
    bind_id(s, 1, id);
    bind_key(s, 2, tenant);
    sqlite3_bind_int64(s, 3, now_s);
    const int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        const int64_t n = sqlite3_column_int64(s, 1);
        read_previous(s, previous);
        *n_bytes = n > 0 ? (size_t)n : 0;
    }
    rewind_statement(s);
    return code;
}

int response_db_turn(struct response_db *d, const char *id, bool *any, struct buffer *o)
{
    sqlite3_stmt *s = d->statements[RESPONSE_TURN];
    bind_id(s, 1, id);
    const int code = sqlite3_step(s);
    for (int i = 0; code == SQLITE_ROW && i < 2; i++) {
        const void *items = sqlite3_column_blob(s, i);
        const size_t n = (size_t)sqlite3_column_bytes(s, i);
        if (n == 0)
            continue;
        if (*any)
            buffer_append(o, ",", 1);
        *any = true;
        buffer_append(o, items, n);
    }
    rewind_statement(s);
    return code;
}

int response_db_touch(struct response_db *d, const char *id, int64_t now_s)
{
    sqlite3_stmt *s = d->statements[RESPONSE_TOUCH];
    bind_id(s, 1, id);
    sqlite3_bind_int64(s, 2, ++d->used);
    sqlite3_bind_int64(s, 3, now_s + d->options.ttl_s);
    return finish(s);
}

int response_db_remove(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s)
{
    sqlite3_stmt *s = d->statements[RESPONSE_REMOVE];
    bind_id(s, 1, id);
    bind_key(s, 2, tenant);
    sqlite3_bind_int64(s, 3, now_s);
    const int code = finish(s);
    return code == SQLITE_OK && sqlite3_changes(d->db) > 0 ? SQLITE_ROW : code;
}

int response_db_count(struct response_db *d, struct response_store_counts *out)
{
    sqlite3_stmt *s = d->statements[RESPONSE_OF_ALL];
    const int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        out->n_bytes = (uint64_t)sqlite3_column_int64(s, 0);
        out->n_responses = (uint64_t)sqlite3_column_int64(s, 1);
    }
    rewind_statement(s);
    return code;
}
