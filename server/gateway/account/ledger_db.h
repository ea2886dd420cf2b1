/* The SQLite file of a ledger: keys, budgets, usage, and named values. Blocks on the disk; one thread at a time. A second process cannot open
 * the file: it would not see what the first one spends.
 */
#ifndef QUIRE_GATEWAY_LEDGER_DB_H
#define QUIRE_GATEWAY_LEDGER_DB_H

#include "base/hash.h"
#include "base/status.h"
#include "server/gateway/account/payer.h"

#include <sqlite3.h>

#define LEDGER_MAX_MODEL 128
#define LEDGER_ID_BYTES 24 /* "key_" and 16 hexadecimal digits */

enum ledger_statement {
    LEDGER_BEGIN,
    LEDGER_COMMIT,
    LEDGER_ROLLBACK,
    LEDGER_PUT_KEY,
    LEDGER_USED,
    LEDGER_PUT_BUDGET,
    LEDGER_ADD_USAGE,
    LEDGER_KEYS,
    LEDGER_BUDGETS,
    LEDGER_SPENT,
    LEDGER_USAGE,
    LEDGER_PUT_STATE,
    LEDGER_STATES,
    LEDGER_N_STATEMENTS
};

struct ledger_db { /* zero it to begin */
    sqlite3 *db;
    sqlite3_stmt *statements[LEDGER_N_STATEMENTS];
};

/* A key without its text. Times are seconds since 1970; 0: never. */
struct ledger_key_row {
    char id[LEDGER_ID_BYTES];
    char name[PAYER_MAX_NAME + 1], tenant[PAYER_MAX_NAME + 1], organisation[PAYER_MAX_NAME + 1];
    struct key256 hash, old_hash; /* SHA-256 of the present and of the previous key */
    int64_t old_until; /* the old one is valid before this time */
    int64_t created, used, revoked;
};

struct ledger_sums {
    uint64_t requests, input, cached_input, output, cost, saved;
};
/* Usage of one model by one key or tenant on one day. Texts are borrowed. */
struct ledger_usage_row {
    int64_t day;
    const char *organisation, *tenant, *key, *model, *layer; /* key "": without one; layer "": not from a cache */
    struct ledger_sums sums;
    int64_t used; /* the last request */
};

/* What to list: "": all. */
struct ledger_question {
    int64_t from, to; /* days, both included */
    char organisation[PAYER_MAX_NAME + 1], tenant[PAYER_MAX_NAME + 1], key[PAYER_MAX_NAME + 1];
};

/* path NULL: in memory. QUIRE_IO: the message names the file and says what to do. */
int ledger_db_open(struct ledger_db *d, const char *path, struct quire_error *err);
void ledger_db_close(struct ledger_db *d);

/* SQLite's codes; SQLITE_OK: done. */
int ledger_db_begin(struct ledger_db *d);
/* Commits if code is SQLITE_OK, else rolls back. Returns code, or that of the commit. */
int ledger_db_end(struct ledger_db *d, int code);
int ledger_db_put_key(struct ledger_db *d, const struct ledger_key_row *key);
int ledger_db_put_budget(struct ledger_db *d, enum payer_kind kind, const char *name, bool has_budget, uint64_t budget);
int ledger_db_add_usage(struct ledger_db *d, const struct ledger_usage_row *row);
int ledger_db_put_state(struct ledger_db *d, const char *name, const void *bytes, size_t n);

/* Calls `each` for every row; it returns false to stop. */
int ledger_db_keys(struct ledger_db *d, bool (*each)(void *context, const struct ledger_key_row *key), void *context);
int ledger_db_budgets(struct ledger_db *d,
                      bool (*each)(void *context, enum payer_kind kind, const char *name, uint64_t budget),
                      void *context);
/* Calls `each` with the cost of each row of a day; other sums are 0. */
int ledger_db_spent(struct ledger_db *d, int64_t day, bool (*each)(void *context, const struct ledger_usage_row *row),
                    void *context);
int ledger_db_usage(struct ledger_db *d, const struct ledger_question *question,
                    bool (*each)(void *context, const struct ledger_usage_row *row), void *context);
/* Named values (ledger_state.h); those with longer names or more than 1 MiB are left out. */
int ledger_db_states(struct ledger_db *d, bool (*each)(void *context, const char *name, const void *bytes, size_t n),
                     void *context);

#endif
