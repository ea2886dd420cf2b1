/* The ledger's own struct, for the files of this folder. */
#ifndef QUIRE_GATEWAY_LEDGER_INTERNAL_H
#define QUIRE_GATEWAY_LEDGER_INTERNAL_H

#include "server/gateway/account/accounts.h"
#include "server/gateway/account/ledger_writer.h"

struct ledger {
    struct accounts accounts;
    struct ledger_writer *writer;
    char warning[256]; /* of the last ledger_admit() */
    bool is_short_logged; /* that usage was lost for want of memory */
};

#endif
