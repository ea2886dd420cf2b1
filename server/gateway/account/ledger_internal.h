/* The ledger's own struct, for the files of this folder. */
#ifndef QUIRE_GATEWAY_LEDGER_INTERNAL_H
#define QUIRE_GATEWAY_LEDGER_INTERNAL_H

#include "server/gateway/account/accounts.h"
#include "server/gateway/account/ledger_writer.h"

/* A value that the file had when it was opened (ledger_state.h). */
struct ledger_state {
    struct ledger_state *next;
    char name[PAYER_MAX_NAME + 1];
    size_t n;
    char bytes[];
};

struct ledger {
    struct accounts accounts;
    struct ledger_writer *writer;
    char warning[256]; /* of the last ledger_admit() */
    struct {
        struct ledger_state *first;
        size_t n_bytes;
        bool is_failure_logged; /* the last value was not written */
    } states;
    bool has_file;
    bool is_short_logged; /* that usage was lost for want of memory */
};

/* ---- ledger_state.c ---- */
/* For ledger_db_states(). context: the ledger. */
bool ledger_state_load(void *context, const char *name, const void *bytes, size_t n);
void ledger_states_free(struct ledger *l);

#endif
