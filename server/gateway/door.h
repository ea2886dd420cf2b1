/* The front door: which requests may enter, and who answers them. Loop's thread. */
#ifndef QUIRE_GATEWAY_DOOR_H
#define QUIRE_GATEWAY_DOOR_H

#include "server/gateway/gateway_internal.h"

/* Whether requests need a key: of --api-key, --tenants or the ledger. */
bool door_asks_key(const struct gateway *g);
extern const struct http_handler gateway_handler; /* its context is the gateway */

#endif
