#include "server/gateway/account/accounts.h"

#include <stdlib.h>
#include <string.h>

/* ---- payers --------------------------------------------------------------------------------- */

static uint32_t bucket_of(enum payer_kind kind, const char *name)
{
    uint64_t h = 14695981039346656037u + (uint64_t)kind; /* FNV-1a */
    for (const char *c = name; *c; c++)
        h = (h ^ (uint8_t)*c) * 1099511628211u;
    return (uint32_t)(h >> 32) % ACCOUNTS_BUCKETS;
}

struct named_payer *accounts_payer(struct accounts *a, enum payer_kind kind, const char *name)
{
    struct named_payer **bucket = &a->buckets[bucket_of(kind, name)];
    for (struct named_payer *p = *bucket; p; p = p->next)
        if (p->payer.kind == kind && strcmp(p->payer.name, name) == 0)
            return p;
    const size_t n = strlen(name);
    struct named_payer *p = n <= PAYER_MAX_NAME && a->n_payers < ACCOUNTS_MAX_PAYERS ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->payer.kind = kind;
    memcpy(p->payer.name, name, n + 1);
    p->account = (struct ledger_account){.payer = &p->payer, .tenant = &p->payer};
    p->next = *bucket;
    *bucket = p;
    a->n_payers++;
    return p;
}

void accounts_each_payer(struct accounts *a, void (*each)(void *context, struct payer *p), void *context)
{
    for (size_t i = 0; i < ACCOUNTS_BUCKETS; i++)
        for (struct named_payer *p = a->buckets[i]; p; p = p->next)
            each(context, &p->payer);
}

bool accounts_join(struct accounts *a, struct named_payer *tenant, struct named_payer *organisation, const char **other)
{
    (void)a;
    if (tenant->n_keys > 0 && tenant->payer.above != &organisation->payer) {
        *other = tenant->payer.above->name;
        return false;
    }
    tenant->payer.above = &organisation->payer;
    return true;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static struct key256 compared(const struct accounts *a, const struct key256 *sha256)
{
    return quire_keyed_hash(&a->compare_key, sha256, sizeof *sha256);
}

/* A map by the beginning of a hash that only this process can compute reveals nothing by its time. */
static uint64_t number_of(const struct accounts *a, const struct key256 *sha256)
{
    const struct key256 hash = compared(a, sha256);
    uint64_t n;
    memcpy(&n, hash.bytes, sizeof n);
    return n;
}

/* "key_" and 16 hexadecimal digits. */
static uint64_t number_of_id(const char *id)
{
    char *end;
    if (strlen(id) != LEDGER_ID_BYTES - 4 || strncmp(id, "key_", 4) != 0 || strspn(id + 4, "0123456789abcdef") != 16)
        return 0;
    return strtoull(id + 4, &end, 16);
}

static bool has_old(const struct ledger_key_row *row)
{
    return row->old_until > 0;
}

static int map_key(struct accounts *a, struct ledger_key *key)
{
    const uint64_t id = number_of_id(key->row.id);
    int status = id ? id_map_add(&a->by_id, id, (uintptr_t)key) : QUIRE_INVALID;
    if (status == QUIRE_OK)
        status = id_map_add(&a->by_hash, number_of(a, &key->row.hash), (uintptr_t)key);
    if (status == QUIRE_OK && has_old(&key->row))
        status = id_map_add(&a->by_hash, number_of(a, &key->row.old_hash), (uintptr_t)key);
    return status;
}

static void unmap_key(struct accounts *a, const struct ledger_key *key)
{
    id_map_remove(&a->by_id, number_of_id(key->row.id));
    id_map_remove(&a->by_hash, number_of(a, &key->row.hash));
    id_map_remove(&a->by_hash, number_of(a, &key->row.old_hash));
}

int accounts_add_key(struct accounts *a, const struct ledger_key_row *row)
{
    struct named_payer *tenant = accounts_payer(a, PAYER_TENANT, row->tenant);
    struct named_payer *organisation = accounts_payer(a, PAYER_ORGANISATION, row->organisation);
    const char *other;
    if (a->n_keys == ACCOUNTS_MAX_KEYS || !tenant || !organisation)
        return QUIRE_EXHAUSTED;
    if (a->n_keys == a->capacity) {
        const size_t capacity = a->capacity ? 2 * a->capacity : 64;
        struct ledger_key **keys = realloc(a->keys, capacity * sizeof *keys);
        if (!keys)
            return QUIRE_NO_MEMORY;
        a->keys = keys;
        a->capacity = capacity;
    }
    struct ledger_key *key = calloc(1, sizeof *key);
    if (!key)
        return QUIRE_NO_MEMORY;
    accounts_join(a, tenant, organisation, &other); /* a damaged file may say otherwise: the first one stays */
    key->row = *row;
    key->payer.kind = PAYER_KEY;
    memcpy(key->payer.name, row->id, sizeof row->id);
    key->payer.above = &tenant->payer;
    key->account = (struct ledger_account){.payer = &key->payer, .tenant = &tenant->payer, .key = key};
    const int status = map_key(a, key);
    if (status != QUIRE_OK) {
        unmap_key(a, key);
        free(key);
        return status;
    }
    tenant->n_keys++;
    a->keys[a->n_keys++] = key;
    return QUIRE_OK;
}

struct ledger_key *accounts_key(struct accounts *a, const char *id)
{
    const uint64_t number = number_of_id(id);
    return number ? (struct ledger_key *)id_map_find(&a->by_id, number) : NULL;
}

struct ledger_key *accounts_find(struct accounts *a, const char *text, int64_t now_s)
{
    const struct key256 sha256 = quire_sha256(text, strlen(text));
    struct ledger_key *key = (struct ledger_key *)id_map_find(&a->by_hash, number_of(a, &sha256));
    if (!key || key->row.revoked)
        return NULL;
    const int is_present = quire_secret_equal(&sha256, &key->row.hash, sizeof sha256);
    const int is_old = quire_secret_equal(&sha256, &key->row.old_hash, sizeof sha256);
    return is_present || (is_old && now_s < key->row.old_until) ? key : NULL;
}

int accounts_rotate(struct accounts *a, struct ledger_key *key, const struct key256 *sha256, int64_t old_until)
{
    if (id_map_add(&a->by_hash, number_of(a, sha256), (uintptr_t)key) != QUIRE_OK)
        return QUIRE_NO_MEMORY;
    if (has_old(&key->row))
        id_map_remove(&a->by_hash, number_of(a, &key->row.old_hash));
    key->row.old_hash = key->row.hash;
    key->row.old_until = old_until;
    key->row.hash = *sha256;
    return QUIRE_OK;
}

void accounts_free(struct accounts *a)
{
    for (size_t i = 0; i < a->n_keys; i++)
        free(a->keys[i]);
    for (size_t i = 0; i < ACCOUNTS_BUCKETS; i++) {
        for (struct named_payer *p = a->buckets[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    }
    free(a->keys);
    id_map_free(&a->by_id);
    id_map_free(&a->by_hash);
    *a = (struct accounts){0};
}
