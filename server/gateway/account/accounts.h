/* The accounts of a ledger, in memory: a payer is found by its name, a key by its hash. Nothing is ever freed before
 * the ledger, so that usage and requests may point to them. Loop's thread.
 */
#ifndef QUIRE_GATEWAY_ACCOUNTS_H
#define QUIRE_GATEWAY_ACCOUNTS_H

#include "base/id_map.h"
#include "server/gateway/account/ledger.h"
#include "server/gateway/account/ledger_db.h"

#define ACCOUNTS_MAX_KEYS 65536
#define ACCOUNTS_MAX_PAYERS 65536 /* tenants and organisations */
#define ACCOUNTS_BUCKETS 1024

struct ledger_key;
struct ledger_account {
    struct payer *payer; /* the key, or the tenant without one */
    struct payer *tenant;
    struct ledger_key *key; /* NULL: a tenant without one */
};

struct ledger_key {
    struct ledger_key_row row;
    struct payer payer;
    struct ledger_account account;
    bool is_changing; /* a rotation is being written */
};

/* A tenant or an organisation. */
struct named_payer {
    struct payer payer;
    struct ledger_account account; /* of a tenant */
    uint32_t n_keys; /* of a tenant */
    struct named_payer *next;
};

struct accounts { /* zero it to begin, and fill compare_key */
    struct key256 compare_key; /* keys are compared as hashes with this secret of the process */
    struct ledger_key **keys; /* in order of creation */
    size_t n_keys, capacity;
    struct id_map by_id, by_hash; /* of keys */
    struct named_payer *buckets[ACCOUNTS_BUCKETS];
    size_t n_payers;
};
void accounts_free(struct accounts *a);

/* A tenant or organisation; made if it is new. NULL: no memory, too many, or a name that is too long. */
struct named_payer *accounts_payer(struct accounts *a, enum payer_kind kind, const char *name);
/* Calls `each` for all tenants and organisations. */
void accounts_each_payer(struct accounts *a, void (*each)(void *context, struct payer *p), void *context);
/* Puts a tenant below an organisation. False: it has keys of another one, whose name is in *other. */
bool accounts_join(struct accounts *a, struct named_payer *tenant, struct named_payer *organisation,
                   const char **other);

/* Adds a key; its tenant is made if it is new. QUIRE_NO_MEMORY, QUIRE_EXHAUSTED. */
int accounts_add_key(struct accounts *a, const struct ledger_key_row *row);
struct ledger_key *accounts_key(struct accounts *a, const char *id);
/* By its text; NULL: unknown, expired or revoked. */
struct ledger_key *accounts_find(struct accounts *a, const char *key, int64_t now_s);
/* The key has another hash; the present one is valid until old_until. */
int accounts_rotate(struct accounts *a, struct ledger_key *key, const struct key256 *sha256, int64_t old_until);

#endif
