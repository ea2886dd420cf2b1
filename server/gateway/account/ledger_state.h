/* Named values in a ledger's file, for what a gateway must know after a restart. Loop's thread; the disk is the ledger's
 * thread's. */
#ifndef QUIRE_GATEWAY_LEDGER_STATE_H
#define QUIRE_GATEWAY_LEDGER_STATE_H

#include "base/buffer.h"
#include "server/gateway/account/ledger.h"

#define LEDGER_MAX_STATE ((size_t)1 << 20) /* bytes of a value */
#define LEDGER_MAX_STATES ((size_t)64 << 20) /* of all that are read at the start; the rest is left in the file */

/* The value that the file had when it was opened. Appends it to out and forgets it. Returns false if there is none. */
bool ledger_take_state(struct ledger *l, const char *name, struct buffer *out);
/* Replaces a value, soon. Nothing happens in a ledger in memory, and if memory is exhausted. */
void ledger_put_state(struct ledger *l, const char *name, const void *bytes, size_t n);

#endif
