/* A ledger that admits everyone and keeps nothing: for tests of the gateway that are not about accounts. */
#include "server/gateway/account/ledger.h"

#include <stdio.h>
#include <string.h>

struct ledger {
    int unused;
};
struct ledger_account {
    char name[80];
};

static struct ledger the_ledger;
static struct ledger_account accounts[64];

int ledger_open(struct event_base *base, const char *path, struct ledger **out, struct quire_error *err)
{
    (void)base, (void)path, (void)err;
    *out = &the_ledger;
    return QUIRE_OK;
}
void ledger_close(struct ledger *l)
{
    (void)l;
}
uint64_t ledger_cost(const struct gateway_price *p, const struct ledger_usage *u)
{
    return p->input * (u->input - u->cached_input) + p->cached_input * u->cached_input + p->output * u->output;
}
void ledger_money(uint64_t picodollars, char out[LEDGER_MONEY_BYTES])
{
    size_t n = (size_t)snprintf(out, LEDGER_MONEY_BYTES, "%llu.%012llu",
                                (unsigned long long)(picodollars / 1000000000000u),
                                (unsigned long long)(picodollars % 1000000000000u));
    while (out[n - 1] == '0')
        out[--n] = '\0';
    if (out[n - 1] == '.')
        out[--n] = '\0';
}
bool ledger_asks_key(const struct ledger *l)
{
    (void)l;
    return false;
}
struct ledger_account *ledger_find(struct ledger *l, const char *key, int64_t now_s)
{
    (void)l, (void)key, (void)now_s;
    return NULL;
}
struct ledger_account *ledger_tenant(struct ledger *l, const char *tenant)
{
    (void)l;
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++)
        if (!accounts[i].name[0] || strcmp(accounts[i].name, tenant) == 0) {
            snprintf(accounts[i].name, sizeof accounts[i].name, "%s", tenant);
            return &accounts[i];
        }
    return &accounts[0];
}
const char *ledger_tenant_name(const struct ledger_account *a)
{
    return a->name;
}
bool ledger_admit(struct ledger *l, struct ledger_account *a, int64_t now_s, const char **warning, struct api_error *e)
{
    (void)l, (void)a, (void)now_s, (void)e;
    *warning = NULL;
    return true;
}
void ledger_charge(struct ledger *l, struct ledger_account *a, const char *model, uint64_t cost, uint64_t saved,
                   const struct ledger_usage *usage, int64_t now_s)
{
    (void)l, (void)a, (void)model, (void)cost, (void)saved, (void)usage, (void)now_s;
}
