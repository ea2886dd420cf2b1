/* Sums of usage by day, key and model, until they are written. Zero it to begin. One thread at a time. */
#ifndef QUIRE_GATEWAY_USAGE_TABLE_H
#define QUIRE_GATEWAY_USAGE_TABLE_H

#include "server/gateway/account/ledger_db.h"

#define USAGE_BUCKETS 256

struct usage_entry {
    struct ledger_usage_row row; /* its model is this entry's */
    struct usage_entry *next;
    char model[];
};
struct usage_table {
    struct usage_entry *buckets[USAGE_BUCKETS];
    size_t n;
};

/* Texts other than the model must outlive the table; equal ones are the same pointer. False: no memory. */
bool usage_table_add(struct usage_table *t, const struct ledger_usage_row *row);
/* Moves everything from one table into another. Returns false if memory was exhausted and a part is lost. */
bool usage_table_move(struct usage_table *from, struct usage_table *to);
void usage_table_free(struct usage_table *t);

#endif
