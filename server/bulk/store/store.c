#include "server/bulk/store/store_internal.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define APPLICATION 0x51424348 /* "QBCH": marks the file as one of these */

/* The schema: version n is what the first n steps make. */
static const char *const steps[] = {
    "CREATE TABLE files(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
    " filename TEXT NOT NULL, purpose INTEGER NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL,"
    " expires INTEGER NOT NULL);"
    "CREATE INDEX files_of ON files(tenant, seq);"
    "CREATE TABLE batches(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
    " input TEXT NOT NULL, output TEXT NOT NULL, errors TEXT NOT NULL, url TEXT NOT NULL, dialect INTEGER NOT NULL,"
    " state INTEGER NOT NULL, ending INTEGER NOT NULL, window_s INTEGER NOT NULL, output_ttl_s INTEGER NOT NULL,"
    " at0 INTEGER NOT NULL, at1 INTEGER NOT NULL, at2 INTEGER NOT NULL, at3 INTEGER NOT NULL, at4 INTEGER NOT NULL,"
    " at5 INTEGER NOT NULL, at6 INTEGER NOT NULL, at7 INTEGER NOT NULL,"
    " lines INTEGER NOT NULL, succeeded INTEGER NOT NULL, errored INTEGER NOT NULL, cancelled INTEGER NOT NULL,"
    " expired INTEGER NOT NULL, input_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,"
    " output_tokens INTEGER NOT NULL, metadata TEXT, why TEXT);"
    "CREATE INDEX batches_of ON batches(tenant, seq);"
    "CREATE INDEX batches_in ON batches(state);",
    "ALTER TABLE batches ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE batches ADD COLUMN account TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX files_until ON files(expires) WHERE expires > 0;",
};
#define VERSION ((int)(sizeof steps / sizeof *steps))

/* ---- paths ---------------------------------------------------------------------------------- */

void bulk_store_file_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES])
{
    snprintf(out, BULK_PATH_BYTES, "%s/files/%s.jsonl", s->dir, id);
}

void bulk_store_part_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES])
{
    snprintf(out, BULK_PATH_BYTES, "%s/files/%s.part", s->dir, id);
}

void bulk_store_results_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES])
{
    snprintf(out, BULK_PATH_BYTES, "%s/results/%s.sqlite", s->dir, id);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int make_dir(const char *path, struct quire_error *err)
{
    struct stat is;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return quire_fail(err, QUIRE_IO, "--batch-dir: %s cannot be made: %s", path, strerror(errno));
    if (stat(path, &is) != 0 || !S_ISDIR(is.st_mode))
        return quire_fail(err, QUIRE_INVALID, "--batch-dir: %s is not a directory", path);
    return QUIRE_OK;
}

static int make_dirs(struct bulk_store *s, struct quire_error *err)
{
    static const char *const inner[] = {"", "/files", "/results"};
    char path[BULK_PATH_BYTES];
    int status = QUIRE_OK;
    for (size_t i = 0; i < sizeof inner / sizeof *inner && status == QUIRE_OK; i++) {
        snprintf(path, sizeof path, "%s%s", s->dir, inner[i]);
        status = make_dir(path, err);
    }
    return status;
}

/* Two servers of one directory would run each line twice. */
static int lock(struct bulk_store *s, struct quire_error *err)
{
    char path[BULK_PATH_BYTES];
    snprintf(path, sizeof path, "%s/lock", s->dir);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0)
        return quire_fail(err, QUIRE_IO, "--batch-dir: %s cannot be opened: %s", path, strerror(errno));
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--batch-dir: another process uses %s: give each server a directory of its own", s->dir);
    return QUIRE_OK;
}

static int number_of(struct bulk_store *s, const char *pragma, int64_t *out)
{
    struct store_query q;
    store_prepare(&q, s, pragma);
    *out = store_next(&q) ? store_column(&q) : 0;
    return store_end(&q);
}

static int use_schema(struct bulk_store *s, struct quire_error *err)
{
    int64_t version, application;
    char mark[96];
    int code = number_of(s, "PRAGMA user_version", &version);
    if (code == SQLITE_OK)
        code = number_of(s, "PRAGMA application_id", &application);
    if (code != SQLITE_OK)
        return store_status(s, code, err);
    if ((version != 0 || application != 0) && application != APPLICATION)
        return quire_fail(err, QUIRE_INVALID, "--batch-dir: %s/batches.sqlite is not a store of batches", s->dir);
    if (version < 0 || version > VERSION)
        return quire_fail(
            err, QUIRE_INVALID,
            "--batch-dir: %s/batches.sqlite has version %lld, and this program reads up to %d: use a newer "
            "quire, or another directory",
            s->dir, (long long)version, VERSION);
    if (version == VERSION)
        return QUIRE_OK;
    code = store_exec(s, "BEGIN IMMEDIATE");
    for (int64_t i = version; i < VERSION && code == SQLITE_OK; i++)
        code = store_exec(s, steps[i]);
    snprintf(mark, sizeof mark, "PRAGMA user_version=%d; PRAGMA application_id=%d;", VERSION, APPLICATION);
    if (code == SQLITE_OK)
        code = store_exec(s, mark);
    return store_status(s, store_commit(s, code), err);
}

static int check(struct bulk_store *s, struct quire_error *err)
{
    struct store_query q;
    char found[128] = "";
    store_prepare(&q, s, "PRAGMA quick_check(1)");
    if (store_next(&q))
        store_column_text(&q, found, sizeof found);
    const int code = store_end(&q);
    if (code != SQLITE_OK)
        return store_status(s, code, err);
    return strcmp(found, "ok") == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID,
                            "--batch-dir: %s/batches.sqlite is damaged (%s): restore it, or use another directory",
                            s->dir, found);
}

static int open_db(struct bulk_store *s, struct quire_error *err)
{
    static const char set_up[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF;"
                                 "PRAGMA secure_delete=ON; PRAGMA journal_size_limit=8388608;";
    char path[BULK_PATH_BYTES];
    snprintf(path, sizeof path, "%s/batches.sqlite", s->dir);
    const char *why = file_make_private(path);
    if (why)
        return quire_fail(err, QUIRE_INVALID, "--batch-dir: %s: %s", path, why);
    int code = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = store_exec(s, set_up);
    int status = store_status(s, code, err);
    if (status == QUIRE_OK)
        status = check(s, err);
    return status == QUIRE_OK ? use_schema(s, err) : status;
}

/* ---- remains of a killed process ---- */

static bool is_known(struct bulk_store *s, const char *sql, const char *id)
{
    struct store_query q;
    store_prepare(&q, s, sql);
    store_bind_text(&q, id);
    const bool found = store_next(&q);
    return store_end(&q) != SQLITE_OK || found;
}

/* Removes the files of a folder that no row of sql names. */
static void sweep(struct bulk_store *s, const char *inner, const char *sql)
{
    char path[BULK_PATH_BYTES], id[BULK_ID_BYTES];
    snprintf(path, sizeof path, "%s/%s", s->dir, inner);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const size_t n = strcspn(e->d_name, ".");
        const bool is_part = strcmp(e->d_name + n, ".part") == 0;
        if (n == 0 || n >= sizeof id)
            continue;
        snprintf(id, sizeof id, "%.*s", (int)n, e->d_name);
        if (is_part || !is_known(s, sql, id))
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir)
        closedir(dir);
}

int bulk_store_open(const struct bulk_store_options *options, struct bulk_store **out, struct quire_error *err)
{
    struct bulk_store *s = *out = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    s->lock = -1;
    s->max_bytes = options->max_bytes;
    s->max_tenant_bytes = options->max_tenant_bytes;
    s->dir = strdup(options->dir);
    int status = s->dir ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && strlen(s->dir) > BULK_PATH_BYTES - 128)
        status = quire_fail(err, QUIRE_INVALID, "--batch-dir: the path is too long");
    if (status == QUIRE_OK)
        status = make_dirs(s, err);
    if (status == QUIRE_OK)
        status = lock(s, err);
    if (status == QUIRE_OK)
        status = open_db(s, err);
    if (status == QUIRE_OK) {
        sweep(s, "files", "SELECT 1 FROM files WHERE id = ?");
        sweep(s, "results", "SELECT 1 FROM batches WHERE id = ? AND state IN (0, 1, 2, 5)");
        return QUIRE_OK;
    }
    bulk_store_close(s);
    *out = NULL;
    return status;
}

void bulk_store_close(struct bulk_store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    if (s->lock >= 0)
        close(s->lock);
    free(s->held);
    free(s->dir);
    free(s);
}

int bulk_store_count(struct bulk_store *s, struct bulk_store_counts *out, struct quire_error *err)
{
    struct store_query q;
    *out = (struct bulk_store_counts){0};
    store_prepare(&q, s, "SELECT count(*), coalesce(sum(bytes), 0) FROM files");
    if (store_next(&q)) {
        out->n_files = (uint64_t)store_column(&q);
        out->n_bytes = (uint64_t)store_column(&q);
    }
    int code = store_end(&q);
    if (code != SQLITE_OK)
        return store_status(s, code, err);
    store_prepare(&q, s, "SELECT state, count(*) FROM batches GROUP BY state");
    while (store_next(&q)) {
        const int64_t state = store_column(&q);
        if (state >= 0 && state < BULK_N_STATES)
            out->n_batches[state] = (uint64_t)store_column(&q);
    }
    return store_status(s, store_end(&q), err);
}
