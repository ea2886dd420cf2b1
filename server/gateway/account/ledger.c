#include "server/gateway/account/ledger_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define NO_ORGANISATION "default"

/* ---- opening -------------------------------------------------------------------------------- */

static bool load_key(void *context, const struct ledger_key_row *row)
{
    struct ledger *l = context;
    return accounts_add_key(&l->accounts, row) == QUIRE_OK;
}

static struct payer *payer_of(struct ledger *l, enum payer_kind kind, const char *name)
{
    if (kind == PAYER_KEY) {
        struct ledger_key *key = accounts_key(&l->accounts, name);
        return key ? &key->payer : NULL;
    }
    struct named_payer *p = accounts_payer(&l->accounts, kind, name);
    return p ? &p->payer : NULL;
}

static bool load_budget(void *context, enum payer_kind kind, const char *name, uint64_t budget)
{
    struct payer *p = payer_of(context, kind, name);
    if (!p)
        return kind == PAYER_KEY; /* the file may have lost the key */
    p->has_budget = true;
    p->budget = budget;
    return true;
}

static bool load_spent(void *context, const struct ledger_usage_row *row)
{
    const char *const names[PAYER_KINDS] = {row->key, row->tenant, row->organisation};
    for (int kind = 0; kind < PAYER_KINDS; kind++) {
        struct payer *p = payer_of(context, (enum payer_kind)kind, names[kind]);
        if (p)
            payer_charge(p, row->sums.cost, row->day * PAYER_DAY_S);
    }
    return true;
}

static int load(struct ledger *l, struct ledger_db *db, struct quire_error *err)
{
    const int64_t today = (int64_t)(quire_wall_ns() / 1000000000u) / PAYER_DAY_S;
    int code = ledger_db_keys(db, load_key, l);
    if (code == SQLITE_OK)
        code = ledger_db_budgets(db, load_budget, l);
    if (code == SQLITE_OK)
        code = ledger_db_spent(db, today, load_spent, l);
    if (code == SQLITE_OK)
        code = ledger_db_states(db, ledger_state_load, l);
    if (code == SQLITE_OK)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_IO, "--ledger: cannot be loaded: %s",
                      code == SQLITE_ABORT ? "it has too many or invalid keys, or memory is exhausted"
                                           : sqlite3_errstr(code));
}

int ledger_open(struct event_base *base, const char *path, struct ledger **out, struct quire_error *err)
{
    struct ledger *l = calloc(1, sizeof *l);
    struct ledger_db db = {0};
    *out = NULL;
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "--ledger: out of memory");
    l->has_file = path != NULL;
    quire_random(&l->accounts.compare_key, sizeof l->accounts.compare_key);
    int status = ledger_db_open(&db, path, err);
    if (status == QUIRE_OK)
        status = load(l, &db, err);
    if (status == QUIRE_OK)
        status = ledger_writer_start(base, &db, &l->writer, err);
    if (status != QUIRE_OK) {
        ledger_db_close(&db);
        ledger_close(l);
        return status;
    }
    *out = l;
    return QUIRE_OK;
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    ledger_writer_stop(l->writer);
    accounts_free(&l->accounts);
    ledger_states_free(l);
    free(l);
}

/* ---- accounts ------------------------------------------------------------------------------- */

bool ledger_asks_key(const struct ledger *l)
{
    return l->accounts.n_keys > 0;
}

struct ledger_account *ledger_find(struct ledger *l, const char *key, int64_t now_s)
{
    struct ledger_key *found = accounts_find(&l->accounts, key, now_s);
    if (!found)
        return NULL;
    found->row.used = now_s;
    return &found->account;
}

struct ledger_account *ledger_tenant(struct ledger *l, const char *name)
{
    const char *other;
    struct named_payer *tenant = accounts_payer(&l->accounts, PAYER_TENANT, name);
    if (tenant && !tenant->payer.above) {
        struct named_payer *organisation = accounts_payer(&l->accounts, PAYER_ORGANISATION, NO_ORGANISATION);
        if (!organisation)
            return NULL;
        accounts_join(&l->accounts, tenant, organisation, &other);
    }
    return tenant ? &tenant->account : NULL;
}

const char *ledger_account_id(const struct ledger_account *a)
{
    return a->key ? a->key->row.id : "";
}

struct ledger_account *ledger_by_id(struct ledger *l, const char *id)
{
    struct ledger_key *key = accounts_key(&l->accounts, id);
    return key && !key->row.revoked ? &key->account : NULL;
}

const char *ledger_tenant_name(const struct ledger_account *a)
{
    return a->tenant->name;
}

const char *ledger_key_id(const struct ledger_account *a)
{
    return a->key ? a->key->row.id : NULL;
}

/* ---- requests ------------------------------------------------------------------------------- */

bool ledger_admit(struct ledger *l, struct ledger_account *a, int64_t now_s, const char **warning, struct api_error *e)
{
    *warning = NULL;
    for (struct payer *p = a->payer; p; p = p->above) {
        if (!payer_admit(p, now_s, e)) {
            if (!p->is_refused)
                quire_log(QUIRE_LOG_WARN, "gateway", "%s", e->why.text);
            p->is_refused = true;
            return false;
        }
        if (*warning || !payer_warns(p, now_s, l->warning, sizeof l->warning))
            continue;
        *warning = l->warning;
        if (!p->is_warned)
            quire_log(QUIRE_LOG_WARN, "gateway", "%s", l->warning);
        p->is_warned = true;
    }
    return true;
}

void ledger_charge(struct ledger *l, struct ledger_account *a, const char *model, uint64_t cost, uint64_t saved,
                   const struct ledger_usage *usage, int64_t now_s)
{
    const struct payer *organisation = a->tenant->above;
    const struct ledger_usage_row row = {
        .day = now_s / PAYER_DAY_S,
        .organisation = organisation ? organisation->name : NO_ORGANISATION,
        .tenant = a->tenant->name,
        .key = a->key ? a->key->row.id : "",
        .model = model,
        .layer = usage->from_cache && usage->cache_layer ? usage->cache_layer : "",
        .sums = {1, usage->input, usage->cached_input, usage->output, cost, saved},
        .used = now_s,
    };
    for (struct payer *p = a->payer; p; p = p->above)
        payer_charge(p, cost, now_s);
    if (!ledger_writer_add(l->writer, &row) && !l->is_short_logged) {
        quire_log(QUIRE_LOG_ERROR, "gateway", "out of memory: the usage of a request is not recorded");
        l->is_short_logged = true;
    }
}
