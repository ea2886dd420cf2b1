#include "server/front/output/json_out.h"
#include "server/gateway/account/account_body.h"
#include "server/gateway/account/account_job.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_GRACE_S 86400
#define MAX_GRACE_S (90 * 86400)
#define MAX_KEY_NAME PAYER_MAX_NAME

static void reply(struct http_exchange *x, struct buffer *o)
{
    http_reply(x, o->failed ? 503 : 200, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}

/* ---- the form of a key ---------------------------------------------------------------------- */

static void put_text(struct buffer *o, const char *name, const char *value)
{
    json_out_raw(o, name);
    json_out_text(o, value);
}

static void put_time(struct buffer *o, const char *name, int64_t at_s)
{
    json_out_raw(o, name);
    if (at_s > 0)
        json_out_i64(o, at_s);
    else
        json_out_raw(o, "null");
}

static void put_money(struct buffer *o, const char *name, bool has, uint64_t picodollars)
{
    char money[LEDGER_MONEY_BYTES];
    ledger_money(picodollars, money);
    json_out_raw(o, name);
    json_out_raw(o, has ? money : "null");
}

/* text: the key itself; NULL omits it. */
static void put_key(struct buffer *o, struct ledger_key *key, const char *text)
{
    const int64_t now_s = account_now_s();
    put_text(o, "{\"id\":", key->row.id);
    if (text)
        put_text(o, ",\"key\":", text);
    put_text(o, ",\"name\":", key->row.name);
    put_text(o, ",\"organisation\":", key->row.organisation);
    put_text(o, ",\"tenant\":", key->row.tenant);
    put_money(o, ",\"budget\":", key->payer.has_budget, key->payer.budget);
    put_money(o, ",\"spent_today\":", true, payer_spent(&key->payer, now_s));
    put_time(o, ",\"created\":", key->row.created);
    put_time(o, ",\"last_used\":", key->row.used);
    put_time(o, ",\"old_key_valid_until\":", key->row.old_until > now_s ? key->row.old_until : 0);
    put_time(o, ",\"revoked\":", key->row.revoked);
    json_out_raw(o, "}");
}

void account_list_keys(struct ledger *l, struct http_exchange *x)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < l->accounts.n_keys; i++) {
        if (i)
            json_out_raw(&o, ",");
        put_key(&o, l->accounts.keys[i], NULL);
    }
    json_out_raw(&o, "]}");
    reply(x, &o);
}

/* ---- issue ---------------------------------------------------------------------------------- */

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* 192 random bits: as a SHA-256 they cannot be guessed from the file. */
static void make_text(struct account_job *j)
{
    uint8_t bytes[24];
    quire_random(bytes, sizeof bytes);
    memcpy(j->text, "sk-quire-", 9);
    hex(bytes, sizeof bytes, j->text + 9);
    explicit_bzero(bytes, sizeof bytes);
    j->row.hash = quire_sha256(j->text, strlen(j->text));
}

static void make_id(struct account_job *j)
{
    uint8_t bytes[8];
    do {
        quire_random(bytes, sizeof bytes);
        memcpy(j->row.id, "key_", 4);
        hex(bytes, sizeof bytes, j->row.id + 4);
    } while (accounts_key(&j->ledger->accounts, j->row.id) || strcmp(j->row.id, "key_0000000000000000") == 0);
}

static bool is_key_name(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return n > 0 && n <= MAX_KEY_NAME;
}

static bool read_issue(struct account_job *j, const json_t *body, struct api_error *e)
{
    struct quire_error why;
    struct accounts *a = &j->ledger->accounts;
    const char *name = NULL, *organisation = "default", *tenant = "default", *other;
    if (quire_json_string(body, "request body", "name", &name, &why) != QUIRE_OK || !name || !is_key_name(name))
        return api_bad(e, "name", "must be a text of 1 to %d bytes without control characters", MAX_KEY_NAME);
    if (!account_body_name(body, "organisation", &organisation, e) || !account_body_name(body, "tenant", &tenant, e) ||
        !account_body_dollars(body, "budget", &j->has_budget, &j->budget, e))
        return false;
    if (a->n_keys >= ACCOUNTS_MAX_KEYS)
        return api_fail(e, 400, NULL, "too_many_keys", "at most %d keys", ACCOUNTS_MAX_KEYS);
    struct named_payer *t = accounts_payer(a, PAYER_TENANT, tenant),
                       *o = accounts_payer(a, PAYER_ORGANISATION, organisation);
    if (!t || !o)
        return api_no_memory(e);
    if (!accounts_join(a, t, o, &other))
        return api_bad(e, "organisation", "tenant %s belongs to organisation %s", tenant, other);
    snprintf(j->row.name, sizeof j->row.name, "%s", name);
    snprintf(j->row.tenant, sizeof j->row.tenant, "%s", tenant);
    snprintf(j->row.organisation, sizeof j->row.organisation, "%s", organisation);
    j->row.created = account_now_s();
    make_id(j);
    make_text(j);
    snprintf(j->name, sizeof j->name, "%s", j->row.id);
    j->kind = PAYER_KEY;
    j->sets_budget = j->has_budget;
    return true;
}

static int save_key(struct ledger_db *db, struct ledger_job *job)
{
    const struct account_job *j = (const struct account_job *)job;
    int code = ledger_db_begin(db);
    if (code == SQLITE_OK)
        code = ledger_db_put_key(db, &j->row);
    if (code == SQLITE_OK && j->sets_budget)
        code = ledger_db_put_budget(db, j->kind, j->name, j->has_budget, j->budget);
    return ledger_db_end(db, code);
}

static void issued(struct ledger_job *job, int code)
{
    struct account_job *j = (struct account_job *)job;
    struct accounts *a = &j->ledger->accounts;
    struct buffer o = {0};
    if (code == SQLITE_OK && accounts_add_key(a, &j->row) != QUIRE_OK)
        code = SQLITE_NOMEM;
    struct ledger_key *key = accounts_key(a, j->row.id);
    if (key && j->has_budget) {
        key->payer.has_budget = true;
        key->payer.budget = j->budget;
    }
    if (account_job_succeeded(j, code) && j->x) {
        put_key(&o, key, j->text);
        reply(j->x, &o);
    }
    account_job_free(j);
}

void account_issue_key(struct ledger *l, struct http_exchange *x)
{
    static const char *const known[] = {"name", "organisation", "tenant", "budget"};
    struct api_error e;
    json_t *body;
    struct account_job *j = account_job_new(l, x);
    if (!j)
        return;
    const bool ok = account_body(x, known, 4, &body, &e) && read_issue(j, body, &e);
    json_decref(body);
    if (ok) {
        account_job_run(j, save_key, issued);
        return;
    }
    api_error_reply(x, &e);
    account_job_free(j);
}

/* ---- rotate --------------------------------------------------------------------------------- */

static void rotated(struct ledger_job *job, int code)
{
    struct account_job *j = (struct account_job *)job;
    struct ledger_key *key = accounts_key(&j->ledger->accounts, j->row.id);
    struct buffer o = {0};
    key->is_changing = false;
    if (code == SQLITE_OK && accounts_rotate(&j->ledger->accounts, key, &j->row.hash, j->row.old_until) != QUIRE_OK)
        code = SQLITE_NOMEM;
    if (account_job_succeeded(j, code) && j->x) {
        put_key(&o, key, j->text);
        reply(j->x, &o);
    }
    account_job_free(j);
}

static bool read_rotation(struct account_job *j, const struct ledger_key *key, const json_t *body, struct api_error *e)
{
    struct quire_error why;
    uint32_t grace_s = DEFAULT_GRACE_S;
    if (quire_json_u32(body, "request body", "grace_seconds", 0, MAX_GRACE_S, &grace_s, &why) != QUIRE_OK)
        return api_bad(e, "grace_seconds", "must be a whole number from 0 to %d", MAX_GRACE_S);
    if (key->row.revoked)
        return api_fail(e, 409, NULL, "key_revoked", "the key is revoked; issue another one");
    if (key->is_changing)
        return api_fail(e, 409, NULL, "key_changing", "another rotation of this key is being written; try again");
    j->row = key->row;
    j->row.old_hash = key->row.hash;
    j->row.old_until = account_now_s() + grace_s;
    make_text(j);
    return true;
}

void account_rotate_key(struct ledger *l, struct http_exchange *x, struct ledger_key *key)
{
    static const char *const known[] = {"grace_seconds"};
    struct api_error e;
    json_t *body;
    struct account_job *j = account_job_new(l, x);
    if (!j)
        return;
    const bool ok = account_body(x, known, 1, &body, &e) && read_rotation(j, key, body, &e);
    json_decref(body);
    if (ok) {
        key->is_changing = true;
        account_job_run(j, save_key, rotated);
        return;
    }
    api_error_reply(x, &e);
    account_job_free(j);
}

/* ---- revoke --------------------------------------------------------------------------------- */

static void revoked(struct ledger_job *job, int code)
{
    struct account_job *j = (struct account_job *)job;
    struct buffer o = {0};
    if (account_job_succeeded(j, code) && j->x) {
        put_key(&o, accounts_key(&j->ledger->accounts, j->row.id), NULL);
        reply(j->x, &o);
    }
    account_job_free(j);
}

/* The key is refused at once, even if the file cannot be written. */
void account_revoke_key(struct ledger *l, struct http_exchange *x, struct ledger_key *key)
{
    struct account_job *j = account_job_new(l, x);
    if (!j)
        return;
    if (!key->row.revoked)
        key->row.revoked = account_now_s();
    j->row = key->row;
    account_job_run(j, save_key, revoked);
}

/* ---- budgets -------------------------------------------------------------------------------- */

static void put_budget(struct buffer *o, struct payer *p)
{
    put_text(o, "{\"kind\":", payer_kind_name(p->kind));
    put_text(o, ",\"name\":", p->name);
    put_money(o, ",\"budget\":", p->has_budget, p->budget);
    put_money(o, ",\"spent_today\":", true, payer_spent(p, account_now_s()));
    json_out_raw(o, "}");
}

struct budget_list {
    struct buffer o;
    bool any;
};

static void list_budget(void *context, struct payer *p)
{
    struct budget_list *list = context;
    if (list->any)
        json_out_raw(&list->o, ",");
    list->any = true;
    put_budget(&list->o, p);
}

void account_list_budgets(struct ledger *l, struct http_exchange *x)
{
    struct budget_list list = {{0}, false};
    json_out_raw(&list.o, "{\"object\":\"list\",\"data\":[");
    accounts_each_payer(&l->accounts, list_budget, &list);
    json_out_raw(&list.o, "]}");
    reply(x, &list.o);
}

static struct payer *find_payer(struct ledger *l, enum payer_kind kind, const char *name)
{
    if (kind == PAYER_KEY) {
        struct ledger_key *key = accounts_key(&l->accounts, name);
        return key ? &key->payer : NULL;
    }
    struct named_payer *p = accounts_payer(&l->accounts, kind, name);
    return p ? &p->payer : NULL;
}

static int save_budget(struct ledger_db *db, struct ledger_job *job)
{
    const struct account_job *j = (const struct account_job *)job;
    return ledger_db_put_budget(db, j->kind, j->name, j->has_budget, j->budget);
}

static void budget_saved(struct ledger_job *job, int code)
{
    struct account_job *j = (struct account_job *)job;
    struct payer *p = find_payer(j->ledger, j->kind, j->name);
    struct buffer o = {0};
    if (code == SQLITE_OK) {
        p->has_budget = j->has_budget;
        p->budget = j->budget;
        p->is_warned = p->is_refused = false;
    }
    if (account_job_succeeded(j, code) && j->x) {
        put_budget(&o, p);
        reply(j->x, &o);
    }
    account_job_free(j);
}

static bool read_budget(struct account_job *j, const json_t *body, const char *kind, const char *name,
                        struct api_error *e)
{
    while (j->kind < PAYER_KINDS && strcmp(payer_kind_name(j->kind), kind) != 0)
        j->kind++;
    if (j->kind == PAYER_KINDS)
        return api_fail(e, 404, NULL, "unknown_url", "/admin/budgets/%.20s: must be organisation, tenant or key", kind);
    if (!account_is_name(name))
        return api_fail(e, 404, NULL, "not_found", "\"%.80s\" is not a name: A-Z a-z 0-9 - _ . :", name);
    if (!json_object_get(body, "budget"))
        return api_bad(e, "budget", "is missing: dollars a day, or null for none");
    if (!account_body_dollars(body, "budget", &j->has_budget, &j->budget, e))
        return false;
    if (!find_payer(j->ledger, j->kind, name))
        return j->kind == PAYER_KEY ? api_fail(e, 404, NULL, "not_found", "there is no key %.40s", name)
                                    : api_no_memory(e);
    snprintf(j->name, sizeof j->name, "%s", name);
    return true;
}

void account_set_budget(struct ledger *l, struct http_exchange *x, const char *kind, const char *name)
{
    static const char *const known[] = {"budget"};
    struct api_error e;
    json_t *body;
    struct account_job *j = account_job_new(l, x);
    if (!j)
        return;
    const bool ok = account_body(x, known, 1, &body, &e) && read_budget(j, body, kind, name, &e);
    json_decref(body);
    if (ok) {
        account_job_run(j, save_budget, budget_saved);
        return;
    }
    api_error_reply(x, &e);
    account_job_free(j);
}
