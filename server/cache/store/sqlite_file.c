#include "server/cache/store/sqlite_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* WAL mode, so that readers do not wait for a writer. "Normal" saves one fsync per commit. A killed process loses
 * nothing, and a machine that loses power loses the last commits, each as a whole. */
static const char set_up[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF;"
                             "PRAGMA journal_size_limit=8388608; PRAGMA cell_size_check=ON;";
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value BLOB);"
    "CREATE TABLE IF NOT EXISTS answers(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, "
    "created INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL, hits INTEGER NOT NULL,"
    "tokens INTEGER NOT NULL, domain BLOB NOT NULL, bytes BLOB NOT NULL);"
    "CREATE INDEX IF NOT EXISTS by_expiry ON answers(expires);"
    "CREATE INDEX IF NOT EXISTS by_use ON answers(used);"
    "COMMIT;";
static const char *const texts[FILE_N_STATEMENTS] = {
    [FILE_BEGIN] = "BEGIN IMMEDIATE",
    [FILE_COMMIT] = "COMMIT",
    [FILE_ROLLBACK] = "ROLLBACK",
    [FILE_GET] = "SELECT bytes, created, expires, hits FROM answers WHERE key = ?1 AND expires > ?2",
    /* An entry that another server computed before a clear may arrive after it. A clear in the future comes from a
     * clock that was wrong. */
    [FILE_PUT] = ("INSERT OR REPLACE INTO answers(key, created, expires, used, hits, tokens, domain, bytes) "
                  "SELECT ?1, ?2, ?3, ?4, 0, ?5, ?6, ?7 "
                  "WHERE NOT EXISTS(SELECT 1 FROM meta WHERE name = 'cleared' AND value BETWEEN ?2 AND ?4)"),
    [FILE_REMOVE] = "DELETE FROM answers WHERE key = ?1",
    [FILE_HIT] = "UPDATE answers SET hits = hits + 1, used = ?2 WHERE key = ?1",
    [FILE_CLEAR] = "DELETE FROM answers",
    [FILE_CLEARED] = "INSERT OR REPLACE INTO meta VALUES('cleared', ?1)",
    [FILE_EXPIRE] =
        "DELETE FROM answers WHERE id IN (SELECT id FROM answers WHERE expires <= ?1 ORDER BY expires LIMIT 64)",
    [FILE_EVICT] = "DELETE FROM answers WHERE id IN (SELECT id FROM answers ORDER BY used, id LIMIT 8)",
    [FILE_COUNT] = "SELECT (SELECT count(*) FROM answers), (SELECT count(*) FROM answers WHERE expires <= ?1)",
    [FILE_PAGES] = "PRAGMA page_count",
    [FILE_FREE_PAGES] = "PRAGMA freelist_count",
    [FILE_SHRINK] = "PRAGMA incremental_vacuum(1024)",
};

/* ---- statements ------------------------------------------------------------------------------- */

/* Runs one to its end. */
static int finish(sqlite3_stmt *s)
{
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
    }
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int64_t number(sqlite3_stmt *s)
{
    int64_t n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_reset(s);
    return n;
}

static void bind_key(sqlite3_stmt *s, int at, const struct key256 *key)
{
    sqlite3_bind_blob(s, at, key->bytes, sizeof key->bytes, SQLITE_STATIC);
}

/* ---- opening ---------------------------------------------------------------------------------- */

/* Reads a value of the meta table; returns 0 bytes if it does not exist or is too long. */
static size_t read_meta(sqlite3 *db, const char *name, uint8_t out[32], int *code)
{
    sqlite3_stmt *s = NULL;
    size_t n = 0;
    *code = sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE name = ?1", -1, &s, NULL);
    if (*code == SQLITE_OK) {
        sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
        *code = sqlite3_step(s);
        if (*code == SQLITE_ROW && sqlite3_column_bytes(s, 0) <= 32) {
            n = (size_t)sqlite3_column_bytes(s, 0);
            if (n)
                memcpy(out, sqlite3_column_blob(s, 0), n);
        }
    }
    sqlite3_finalize(s);
    return n;
}

static int write_meta(sqlite3 *db, const char *name, const void *value, int n)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, "INSERT OR IGNORE INTO meta VALUES(?1, ?2)", -1, &s, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_blob(s, 2, value, n, SQLITE_STATIC);
        code = sqlite3_step(s) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
    }
    sqlite3_finalize(s);
    return code;
}

/* NULL: it is ours, or was made so just now. Else why it is not; *code is SQLITE_OK where it should be set aside. */
static const char *check_file(sqlite3 *db, struct key256 identity, int *code)
{
    uint8_t got[32] = {0};
    const uint8_t version[1] = {SQLITE_FILE_VERSION};
    *code = sqlite3_exec(db, "PRAGMA auto_vacuum=INCREMENTAL;", NULL, NULL, NULL); /* for a new file */
    if (*code == SQLITE_OK)
        *code = sqlite3_exec(db, set_up, NULL, NULL, NULL);
    sqlite3_stmt *s = NULL;
    if (*code == SQLITE_OK)
        *code = sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_schema", -1, &s, NULL);
    bool fresh = false;
    if (*code == SQLITE_OK) {
        *code = sqlite3_step(s) == SQLITE_ROW ? SQLITE_OK : sqlite3_errcode(db);
        fresh = *code == SQLITE_OK && sqlite3_column_int64(s, 0) == 0;
    }
    sqlite3_finalize(s);
    if (*code == SQLITE_OK && fresh) {
        *code = sqlite3_exec(db, schema, NULL, NULL, NULL);
        if (*code == SQLITE_OK)
            *code = write_meta(db, "version", version, 1);
        if (*code == SQLITE_OK)
            *code = write_meta(db, "identity", identity.bytes, 32);
    }
    if (sqlite_file_is_damage(*code)) {
        *code = SQLITE_OK;
        return "is not a SQLite file, or is damaged";
    }
    if (*code != SQLITE_OK)
        return sqlite3_errmsg(db);
    const bool same_version = read_meta(db, "version", got, code) == 1 && got[0] == SQLITE_FILE_VERSION;
    const char *why = same_version ? NULL : "has another version, or belongs to another program";
    if (same_version && (read_meta(db, "identity", got, code) != 32 || memcmp(got, identity.bytes, 32) != 0))
        why = "belongs to another model, weights or numerics version";
    if (*code == SQLITE_BUSY || *code == SQLITE_IOERR || *code == SQLITE_NOMEM)
        return sqlite3_errmsg(db);
    *code = SQLITE_OK;
    return why;
}

static void close_db(struct sqlite_file *f)
{
    for (size_t i = 0; i < FILE_N_STATEMENTS; i++) {
        sqlite3_finalize(f->statements[i]);
        f->statements[i] = NULL;
    }
    sqlite3_close(f->db);
    f->db = NULL;
}

/* Renames PATH and SQLite's companion files to PATH.old-TIME. */
static int set_aside(const char *path, const char *why, char note[256], struct quire_error *err)
{
    static const char *const beside[] = {"", "-wal", "-shm"};
    char stamp[32], from[4096], to[4160];
    time_t now = time(NULL);
    struct tm utc;
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    for (unsigned i = 0;; i++) { /* one of this second may be there */
        snprintf(to, sizeof to, i ? "%s.old-%s.%u" : "%s.old-%s", path, stamp, i);
        if (access(to, F_OK) != 0)
            break;
    }
    const size_t n_to = strlen(to);
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s%s", path, beside[i]);
        snprintf(to + n_to, sizeof to - n_to, "%s", beside[i]);
        if (rename(from, to) != 0 && (i == 0 || errno != ENOENT))
            return quire_fail(err, QUIRE_IO, "--response-cache sqlite:%s: %s, and cannot be renamed: %s", path, why,
                              strerror(errno));
    }
    to[n_to] = '\0';
    const char *base = strrchr(to, '/');
    snprintf(note, 256, "it %s: renamed to %.120s", why, base ? base + 1 : to);
    return QUIRE_OK;
}

static int open_db(struct sqlite_file *f, struct quire_error *err)
{
    /* Other users of this machine must not read the answers. SQLite gives its companion files the same mode. */
    const int made = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (made >= 0)
        close(made);
    int code = sqlite3_open_v2(f->path, &f->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        code = quire_fail(err, QUIRE_IO, "--response-cache sqlite:%s: %s", f->path,
                          f->db ? sqlite3_errmsg(f->db) : "out of memory");
        close_db(f);
        return code;
    }
    sqlite3_busy_timeout(f->db, 1000);
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_limit(f->db, SQLITE_LIMIT_LENGTH, (int)SQLITE_FILE_MAX_ANSWER + (1 << 20));
    return QUIRE_OK;
}

static int open_lock(const char *path, int *lock, struct quire_error *err)
{
    char name[4096];
    struct stat st;
    *lock = -1;
    if (path[0] == '\0' || strlen(path) > 4000)
        return quire_fail(err, QUIRE_INVALID, "--response-cache sqlite:PATH: a path of 1 to 4,000 bytes is missing");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return quire_fail(err, QUIRE_INVALID, "--response-cache sqlite:%s: is not a regular file", path);
    snprintf(name, sizeof name, "%s.lock", path);
    *lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0)
        return quire_fail(err, QUIRE_IO, "--response-cache sqlite:%s: %s: %s", path, name, strerror(errno));
    return QUIRE_OK;
}

int sqlite_file_probe(const char *path, struct quire_error *err)
{
    int lock;
    int status = open_lock(path, &lock, err);
    if (status != QUIRE_OK)
        return status;
    close(lock);
    const int made = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0)
        return quire_fail(err, QUIRE_IO, "--response-cache sqlite:%s: %s", path, strerror(errno));
    close(made);
    return QUIRE_OK;
}

/* As check_file() says it. */
static const char *prepare(struct sqlite_file *f, int *code)
{
    *code = SQLITE_OK;
    for (size_t i = 0; i < FILE_N_STATEMENTS && *code == SQLITE_OK; i++)
        *code = sqlite3_prepare_v3(f->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &f->statements[i], NULL);
    if (*code == SQLITE_ERROR || sqlite_file_is_damage(*code)) {
        *code = SQLITE_OK;
        return "lacks the expected tables";
    }
    if (*code != SQLITE_OK)
        return sqlite3_errmsg(f->db);
    sqlite3_stmt *s = NULL;
    f->page_bytes = 0;
    if (sqlite3_prepare_v2(f->db, "PRAGMA page_size", -1, &s, NULL) == SQLITE_OK)
        f->page_bytes = (uint64_t)number(s);
    sqlite3_finalize(s);
    if (f->page_bytes == 0)
        f->page_bytes = 4096;
    /* A second limit through SQLite itself, in case eviction fails. */
    char text[64];
    snprintf(text, sizeof text, "PRAGMA max_page_count=%llu", (unsigned long long)(f->max_bytes / f->page_bytes));
    sqlite3_exec(f->db, text, NULL, NULL, NULL);
    return NULL;
}

/* Records the file's identity and makes it private to its owner, because an old or copied file may be readable by
 * others. It uses paths, because closing a descriptor of its own would release SQLite's locks. */
static int make_private(struct sqlite_file *f, struct quire_error *err)
{
    static const char *const beside[] = {"", "-wal", "-shm"};
    char name[4096];
    struct stat st;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(name, sizeof name, "%s%s", f->path, beside[i]);
        if (stat(name, &st) != 0)
            continue;
        if (i == 0) {
            f->device = st.st_dev;
            f->inode = st.st_ino;
        }
        if ((st.st_mode & 077) && chmod(name, 0600) != 0)
            return quire_fail(err, QUIRE_IO,
                              "--response-cache sqlite:%s: other users may read %s, and that cannot be "
                              "prevented: %s",
                              f->path, name, strerror(errno));
    }
    return QUIRE_OK;
}

/* The lock is held, shared or alone; it is shared afterwards. */
static int open_checked(struct sqlite_file *f, char note[256], struct quire_error *err)
{
    for (bool again = false;; again = true) {
        int code;
        int status = open_db(f, err);
        if (status != QUIRE_OK)
            return status;
        const char *why = check_file(f->db, f->identity, &code);
        if (!why)
            why = prepare(f, &code);
        if (!why)
            break;
        if (code != SQLITE_OK || again)
            return quire_fail(err, QUIRE_IO, "--response-cache sqlite:%s: %s", f->path, why);
        close_db(f);
        if (flock(f->lock, LOCK_EX | LOCK_NB) != 0)
            return quire_fail(err, QUIRE_INVALID, "--response-cache sqlite:%s: %s, and another process has it open",
                              f->path, why);
        status = set_aside(f->path, why, note, err);
        if (status != QUIRE_OK)
            return status;
    }
    flock(f->lock, LOCK_SH);
    return make_private(f, err);
}

int sqlite_file_open(struct sqlite_file *f, const char *path, struct key256 identity, uint64_t max_bytes,
                     char note[256], struct quire_error *err)
{
    *f = (struct sqlite_file){.lock = -1, .max_bytes = max_bytes, .identity = identity, .path = strdup(path)};
    note[0] = '\0';
    int status = f->path ? open_lock(path, &f->lock, err) : (int)quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && flock(f->lock, LOCK_SH | LOCK_NB) != 0)
        status = quire_fail(err, QUIRE_EXHAUSTED, "--response-cache sqlite:%s: another process is renaming it", path);
    if (status == QUIRE_OK)
        status = open_checked(f, note, err);
    if (status != QUIRE_OK)
        sqlite_file_close(f);
    return status;
}

void sqlite_file_close(struct sqlite_file *f)
{
    close_db(f);
    if (f->lock >= 0)
        close(f->lock);
    f->lock = -1;
    free(f->path);
    f->path = NULL;
}

/* ---- damage ----------------------------------------------------------------------------------- */

bool sqlite_file_is_damage(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

void sqlite_file_give_up(struct sqlite_file *f)
{
    close_db(f);
    flock(f->lock, LOCK_UN);
}

/* Whether the name still refers to the open file. */
static bool is_still_there(const struct sqlite_file *f)
{
    struct stat st;
    return stat(f->path, &st) == 0 && st.st_dev == f->device && st.st_ino == f->inode;
}

int sqlite_file_renew(struct sqlite_file *f, char note[256], struct quire_error *err)
{
    int status = QUIRE_OK;
    note[0] = '\0';
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) {
        if (is_still_there(f))
            status = set_aside(f->path, "is damaged", note, err);
    } else if (flock(f->lock, LOCK_SH | LOCK_NB) != 0 || is_still_there(f)) {
        status = quire_fail(err, QUIRE_EXHAUSTED, "it is damaged, and another process has it open");
    }
    if (status == QUIRE_OK)
        status = open_checked(f, note, err);
    if (status != QUIRE_OK)
        sqlite_file_give_up(f);
    return status;
}

/* ---- answers ---------------------------------------------------------------------------------- */

int sqlite_file_get(struct sqlite_file *f, struct key256 key, int64_t now_s, struct sqlite_found *out)
{
    sqlite3_stmt *s = f->statements[FILE_GET];
    *out = (struct sqlite_found){0};
    bind_key(s, 1, &key);
    sqlite3_bind_int64(s, 2, now_s);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(s, 0);
        const int n = sqlite3_column_bytes(s, 0);
        out->bytes = bytes && n > 0 ? malloc((size_t)n) : NULL;
        if (out->bytes)
            memcpy(out->bytes, bytes, (size_t)n);
        else
            code = SQLITE_NOMEM;
        out->n = (size_t)n;
        out->created_s = sqlite3_column_int64(s, 1);
        out->expires_s = sqlite3_column_int64(s, 2);
        const int64_t hits = sqlite3_column_int64(s, 3);
        out->hits = hits > 0 ? (uint64_t)hits : 0;
    }
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return code;
}

int sqlite_file_begin(struct sqlite_file *f)
{
    return finish(f->statements[FILE_BEGIN]);
}

int sqlite_file_commit(struct sqlite_file *f)
{
    return finish(f->statements[FILE_COMMIT]);
}

void sqlite_file_rollback(struct sqlite_file *f)
{
    if (!sqlite3_get_autocommit(f->db)) /* some errors roll back by themselves */
        finish(f->statements[FILE_ROLLBACK]);
}

static uint64_t used_bytes(struct sqlite_file *f)
{
    return (uint64_t)(number(f->statements[FILE_PAGES]) - number(f->statements[FILE_FREE_PAGES])) * f->page_bytes;
}

static int make_space(struct sqlite_file *f, size_t n, int64_t now_s, uint64_t *n_evicted)
{
    /* An answer's pages, and those of trees that may split. */
    const uint64_t need = n + 16 * f->page_bytes;
    if (need + 16 * f->page_bytes > f->max_bytes)
        return SQLITE_TOOBIG;
    bool expired = true;
    while (used_bytes(f) + need > f->max_bytes) {
        sqlite3_stmt *s = f->statements[expired ? FILE_EXPIRE : FILE_EVICT];
        if (expired)
            sqlite3_bind_int64(s, 1, now_s);
        int code = finish(s);
        if (code != SQLITE_OK)
            return code;
        const int n_gone = sqlite3_changes(f->db);
        if (n_gone == 0 && !expired)
            return SQLITE_FULL;
        if (!expired)
            *n_evicted += (uint64_t)n_gone;
        expired = expired && n_gone > 0;
    }
    return SQLITE_OK;
}

int sqlite_file_put(struct sqlite_file *f, const struct sqlite_put *put, int64_t now_s, uint64_t *n_evicted)
{
    int code = make_space(f, put->n, now_s, n_evicted);
    if (code != SQLITE_OK)
        return code;
    sqlite3_stmt *s = f->statements[FILE_PUT];
    bind_key(s, 1, &put->key);
    sqlite3_bind_int64(s, 2, put->created_s);
    sqlite3_bind_int64(s, 3, put->expires_s);
    sqlite3_bind_int64(s, 4, now_s);
    sqlite3_bind_int64(s, 5, put->n_tokens);
    bind_key(s, 6, &put->domain);
    sqlite3_bind_blob64(s, 7, put->bytes, put->n, SQLITE_STATIC);
    return finish(s);
}

int sqlite_file_remove(struct sqlite_file *f, struct key256 key)
{
    bind_key(f->statements[FILE_REMOVE], 1, &key);
    return finish(f->statements[FILE_REMOVE]);
}

int sqlite_file_hit(struct sqlite_file *f, struct key256 key, int64_t now_s)
{
    bind_key(f->statements[FILE_HIT], 1, &key);
    sqlite3_bind_int64(f->statements[FILE_HIT], 2, now_s);
    return finish(f->statements[FILE_HIT]);
}

int sqlite_file_clear(struct sqlite_file *f, int64_t now_s, uint64_t *n_removed)
{
    int code = finish(f->statements[FILE_CLEAR]);
    *n_removed = code == SQLITE_OK ? (uint64_t)sqlite3_changes(f->db) : 0;
    sqlite3_bind_int64(f->statements[FILE_CLEARED], 1, now_s);
    return code == SQLITE_OK ? finish(f->statements[FILE_CLEARED]) : code;
}

int sqlite_file_shrink(struct sqlite_file *f, bool *more)
{
    const int code = finish(f->statements[FILE_SHRINK]);
    *more = code == SQLITE_OK && number(f->statements[FILE_FREE_PAGES]) > 0;
    if (code == SQLITE_OK && !*more) /* the file itself is cut when its log is taken over */
        sqlite3_wal_checkpoint_v2(f->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return code;
}

int sqlite_file_count(struct sqlite_file *f, int64_t now_s, uint64_t *n_entries, uint64_t *n_expired, uint64_t *n_bytes)
{
    sqlite3_stmt *s = f->statements[FILE_COUNT];
    sqlite3_bind_int64(s, 1, now_s);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        *n_entries = (uint64_t)sqlite3_column_int64(s, 0);
        *n_expired = (uint64_t)sqlite3_column_int64(s, 1);
    }
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    *n_bytes = used_bytes(f);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}
