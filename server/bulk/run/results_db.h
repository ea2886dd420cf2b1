/* The SQLite file of a batch's results. One thread at a time, unless noted. */
#ifndef QUIRE_BULK_RESULTS_DB_H
#define QUIRE_BULK_RESULTS_DB_H

#include "server/bulk/run/results.h"

#include <sqlite3.h>

struct results_db {
    sqlite3 *db;
    sqlite3_stmt *put;
    int lock; /* a descriptor whose flock() keeps other processes away */
};

struct results_row {
    uint32_t line;
    enum bulk_outcome outcome;
    struct bulk_tokens tokens;
    const char *json;
    size_t n_json;
};

/* As bulk_results_open(). results_db_close() is needed in any case. */
int results_db_open(struct results_db *d, const char *path, uint64_t digest, uint32_t n_lines, struct quire_error *err);
void results_db_close(struct results_db *d);
/* Calls found() for each row of a line below n_lines, without its json. */
int results_db_load(struct results_db *d, uint32_t n_lines, void (*found)(void *context, const struct results_row *row),
                    void *context, struct quire_error *err);
/* These return SQLite's codes. Between begin and end, put() adds rows; end(code) commits if code is SQLITE_OK, else it
 * discards them. */
int results_db_begin(struct results_db *d);
int results_db_put(struct results_db *d, const struct results_row *row);
int results_db_end(struct results_db *d, int code);
/* Reads by a connection of its own: any thread. */
int results_db_write(const char *path, unsigned outcomes, FILE *to, struct quire_error *err);

#endif
