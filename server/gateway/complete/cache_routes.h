/* GET /cache/stats and POST /cache/clear of a gateway. Private to this folder. Loop's thread; each ends the exchange. */
#ifndef QUIRE_GATEWAY_COMPLETE_CACHE_ROUTES_H
#define QUIRE_GATEWAY_COMPLETE_CACHE_ROUTES_H

#include "server/gateway/complete/complete.h"

#include <stdbool.h>

void cache_stats(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear);
void cache_clear(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear);

#endif
