/* The accounts of a gateway: keys, budgets, usage. In a SQLite file, or in memory without one. Loop's thread; SQLite
 * writes happen on a thread of the ledger, so that no request waits for a disk.
 *
 * Amounts are picodollars (models_file.h). A day is a day of UTC. Keys are stored as hashes only; the reply that
 * issues a key is the only place that has its text.
 */
#ifndef QUIRE_GATEWAY_LEDGER_H
#define QUIRE_GATEWAY_LEDGER_H

#include "base/status.h"
#include "server/front/api/api_error.h"
#include "server/gateway/file/models_file.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger;
struct ledger_account; /* one key's tenant: borrowed, valid until ledger_close() */

struct ledger_usage {
    uint64_t input, cached_input, output; /* tokens; input includes cached_input */
    bool from_cache;   /* the response cache answered: the cost is 0, and what it would have been is saved */
    const char *cache_layer; /* static, of from_cache: "memory", "semantic", … */
};

/* path NULL: in memory. */
int ledger_open(struct event_base *base, const char *path, struct ledger **out, struct quire_error *err);
void ledger_close(struct ledger *l); /* writes what is pending; NULL is allowed */

/* Exact: sums of tokens × price. */
uint64_t ledger_cost(const struct gateway_price *price, const struct ledger_usage *usage);
/* Writes an amount in dollars without an exponent and without zeros at its end: "0.00000315". */
#define LEDGER_MONEY_BYTES 32
void ledger_money(uint64_t picodollars, char out[LEDGER_MONEY_BYTES]);

/* Whether keys are needed: at least one was issued. */
bool ledger_asks_key(const struct ledger *l);
/* The account of a key; NULL: unknown, expired or revoked. */
struct ledger_account *ledger_find(struct ledger *l, const char *key, int64_t now_s);
/* For requests without a key, and for tenants of --tenants. NULL: no memory, or 65,536 names. */
struct ledger_account *ledger_tenant(struct ledger *l, const char *tenant);
/* The id of an account's key; "": a tenant without one. */
const char *ledger_account_id(const struct ledger_account *a);
/* The account of the key with this id, for work that its request has left behind; NULL: unknown or revoked. */
struct ledger_account *ledger_by_id(struct ledger *l, const char *id);
const char *ledger_tenant_name(const struct ledger_account *a);
/* The id of its key; NULL: it has no key of the ledger. */
const char *ledger_key_id(const struct ledger_account *a);

/* Whether its budgets (organisation, tenant, day) allow a request now. False: a 429 in e with the time of renewal. At 80 %
 * of a budget, *warning is a sentence for the header x-quire-budget-warning; else NULL. */
bool ledger_admit(struct ledger *l, struct ledger_account *a, int64_t now_s, const char **warning, struct api_error *e);
void ledger_charge(struct ledger *l, struct ledger_account *a, const char *model, uint64_t cost, uint64_t saved,
                   const struct ledger_usage *usage, int64_t now_s);

#endif
