/* The SQLite file of cached responses: its schema and its operations. Blocks on the disk; one thread at a time. */
#ifndef QUIRE_CACHE_SQLITE_FILE_H
#define QUIRE_CACHE_SQLITE_FILE_H

#include "base/hash.h"
#include "base/status.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SQLITE_FILE_VERSION 1
#define SQLITE_FILE_MAX_ANSWER ((size_t)64 << 20)

enum sqlite_file_statement {
    FILE_BEGIN,
    FILE_COMMIT,
    FILE_ROLLBACK,
    FILE_GET,
    FILE_PUT,
    FILE_REMOVE,
    FILE_HIT,
    FILE_CLEAR,
    FILE_CLEARED,
    FILE_EXPIRE,
    FILE_EVICT,
    FILE_COUNT,
    FILE_PAGES,
    FILE_FREE_PAGES,
    FILE_SHRINK,
    FILE_N_STATEMENTS
};
struct sqlite_file { /* zero it to begin */
    sqlite3 *db;
    sqlite3_stmt *statements[FILE_N_STATEMENTS];
    int lock; /* PATH.lock, held shared by every user of the file, and exclusively to rename it */
    char *path;
    struct key256 identity;
    dev_t device; /* with inode: which file it is that was opened last */
    ino_t inode;
    uint64_t page_bytes, max_bytes;
};

/* Whether a file can be there and be written, as far as that is known before it is: makes it, and its lock. */
int sqlite_file_probe(const char *path, struct quire_error *err);

/* Renames a file of another version or identity, or of another program, to PATH.old-TIME, and reports that in note.
 * Makes a file that others may read private to its owner, and rejects it if another user owns it. */
int sqlite_file_open(struct sqlite_file *f, const char *path, struct key256 identity, uint64_t max_bytes,
                     char note[256], struct quire_error *err);
void sqlite_file_close(struct sqlite_file *f);

/* Whether a code of those below says that the file is damaged. Then it is to be given up; nothing else may be done until it
 * is renewed: set aside, where that was not done by another process meanwhile, and a fresh one opened. QUIRE_EXHAUSTED:
 * another process has the damaged one open still. */
bool sqlite_file_is_damage(int code);
void sqlite_file_give_up(struct sqlite_file *f);
int sqlite_file_renew(struct sqlite_file *f, char note[256], struct quire_error *err);

struct sqlite_found {
    uint8_t *bytes; /* the caller's */
    size_t n;
    int64_t created_s, expires_s;
    uint64_t hits;
};
/* The functions below return SQLite's codes. SQLITE_ROW: found; SQLITE_DONE: not found. */
int sqlite_file_get(struct sqlite_file *f, struct key256 key, int64_t now_s, struct sqlite_found *out);

/* Between sqlite_file_begin() and sqlite_file_commit(), whole or not at all: SQLITE_OK. */
struct sqlite_put {
    struct key256 key, domain;
    const uint8_t *bytes;
    size_t n;
    int64_t created_s, expires_s;
    uint32_t n_tokens;
};
int sqlite_file_begin(struct sqlite_file *f);
int sqlite_file_commit(struct sqlite_file *f);
void sqlite_file_rollback(struct sqlite_file *f);
/* Makes room first: expired answers go, then those used least recently. */
int sqlite_file_put(struct sqlite_file *f, const struct sqlite_put *put, int64_t now_s, uint64_t *n_evicted);
int sqlite_file_remove(struct sqlite_file *f, struct key256 key);
int sqlite_file_hit(struct sqlite_file *f, struct key256 key, int64_t now_s);
/* Answers of up to this second are gone, and such as come late are not put. */
int sqlite_file_clear(struct sqlite_file *f, int64_t now_s, uint64_t *n_removed);

/* Gives some of what is free in the file back; *more: there is more. */
int sqlite_file_shrink(struct sqlite_file *f, bool *more);

/* n_bytes: size of the file without its free pages. */
int sqlite_file_count(struct sqlite_file *f, int64_t now_s, uint64_t *n_entries, uint64_t *n_expired,
                      uint64_t *n_bytes);

#endif
