/* The database of a response store: its schema and its operations. One thread at a time. Private to response_*.c.
 *
 * The functions return SQLite's codes. */
#ifndef QUIRE_FRONT_RESPONSE_DB_H
#define QUIRE_FRONT_RESPONSE_DB_H

#include "server/front/responses/response_store.h"

#include <sqlite3.h>

enum response_db_statement {
    RESPONSE_BEGIN,
    RESPONSE_COMMIT,
    RESPONSE_ROLLBACK,
    RESPONSE_PUT,
    RESPONSE_FIND,
    RESPONSE_SIZE,
    RESPONSE_TURN,
    RESPONSE_TOUCH,
    RESPONSE_REMOVE,
    RESPONSE_EXPIRE,
    RESPONSE_OF_TENANT,
    RESPONSE_OF_ALL,
    RESPONSE_EVICT,
    RESPONSE_EVICT_ANY,
    RESPONSE_N_STATEMENTS
};
struct response_db { /* zero it to begin */
    sqlite3 *db;
    sqlite3_stmt *statements[RESPONSE_N_STATEMENTS];
    struct response_store_options options;
    int64_t used; /* counts uses, for the order of removal */
};

int response_db_open(struct response_db *d, const struct response_store_options *options, struct quire_error *err);
void response_db_close(struct response_db *d);

int response_db_begin(struct response_db *d);
/* Commits, or rolls back if code is an error. Returns the error, or the code. */
int response_db_end(struct response_db *d, int code);

/* Removes others first, to keep the limits. SQLITE_TOOBIG: it is larger than a tenant's limit. */
int response_db_put(struct response_db *d, const struct response_record *r, int64_t now_s);
/* SQLITE_ROW: found. */
int response_db_find(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s,
                     struct response_record *out);
/* The id of the response before it, which may be "", and the bytes of its turn. SQLITE_ROW: found. */
int response_db_size(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s,
                     char previous[RESPONSE_ID_BYTES], size_t *n_bytes);
/* Appends its turn, the items of input and output, with a comma before if there was an item. SQLITE_ROW: found. */
int response_db_turn(struct response_db *d, const char *id, bool *any, struct buffer *o);
int response_db_touch(struct response_db *d, const char *id, int64_t now_s);
/* SQLITE_ROW: it was there. */
int response_db_remove(struct response_db *d, const struct key256 *tenant, const char *id, int64_t now_s);
/* Removes some of those that have expired. */
int response_db_expire(struct response_db *d, int64_t now_s);
int response_db_count(struct response_db *d, struct response_store_counts *out);

#endif
