#include "server/gateway/relay/relay_internal.h"

#include <string.h>

/* The order is documented in docs/guides/experiments.md: others compute the same arm from it. */
const char *unit_of(const struct relay *r, size_t *n)
{
    if (r->body->n_user > 0) {
        *n = r->body->n_user;
        return r->body->user;
    }
    const char *unit = http_header(r->x, "x-session-id");
    if (!unit || !unit[0])
        unit = ledger_key_id(r->account);
    if (!unit && r->tenant && tenants_ask_key(r->g->options.tenants))
        unit = r->tenant->name;
    *n = unit ? strlen(unit) : 0;
    return unit;
}
