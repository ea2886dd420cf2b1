/* The gateway's routes of keys, budgets and usage (docs/reference/http-api.md, docs/guides/gateway.md):
 *
 *     GET    /admin/keys                    all keys, without their texts
 *     POST   /admin/keys                    issues one: {name, organisation, tenant, budget}
 *     POST   /admin/keys/ID/rotate          another text; the old one stays valid for {grace_seconds}
 *     DELETE /admin/keys/ID                 revokes one
 *     GET    /admin/budgets                 budgets and expenses of today, of organisations and tenants
 *     PUT    /admin/budgets/KIND/NAME       {budget}: dollars a day, or null. KIND: organisation, tenant or key
 *     GET    /usage                         usage of the caller's key; an admin sees all
 *
 * A change is answered when it is in the ledger's file. Loop's thread.
 */
#ifndef QUIRE_GATEWAY_ACCOUNT_H
#define QUIRE_GATEWAY_ACCOUNT_H

#include "server/gateway/account/ledger.h"

#include <stdbool.h>

struct http_exchange;

bool account_has_path(const char *path);
/* Takes over an exchange with such a path and its whole body; false: another path. is_admin: may see and change all.
 * account: the caller's; NULL only for an admin. */
bool account_route(struct ledger *l, struct http_exchange *x, bool is_admin, struct ledger_account *account);

#endif
