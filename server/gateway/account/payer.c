#include "server/gateway/account/payer.h"

#include "server/gateway/account/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define WARN_PERCENT 80

const char *payer_kind_name(enum payer_kind kind)
{
    static const char *const names[PAYER_KINDS] = {"key", "tenant", "organisation"};
    return names[kind];
}

/* A clock that is set back continues the day. */
static void roll(struct payer *p, int64_t now_s)
{
    const int64_t day = now_s / PAYER_DAY_S;
    if (day <= p->day)
        return;
    p->day = day;
    p->spent = 0;
    p->is_warned = p->is_refused = false;
}

uint64_t payer_spent(struct payer *p, int64_t now_s)
{
    roll(p, now_s);
    return p->spent;
}

void payer_charge(struct payer *p, uint64_t cost, int64_t now_s)
{
    roll(p, now_s);
    if (__builtin_add_overflow(p->spent, cost, &p->spent))
        p->spent = UINT64_MAX;
}

/* "2026-11-28T00:00:00Z, in 7 h 12 min", of the end of the payer's day. */
static void renewal(const struct payer *p, int64_t now_s, char out[64])
{
    const time_t at = (time_t)((p->day + 1) * PAYER_DAY_S);
    const long long minutes = ((long long)at - now_s + 59) / 60;
    struct tm utc;
    char text[32];
    gmtime_r(&at, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(out, 64, "%s, in %lld h %lld min", text, minutes / 60, minutes % 60);
}

bool payer_admit(struct payer *p, int64_t now_s, struct api_error *e)
{
    char at[64], money[LEDGER_MONEY_BYTES];
    roll(p, now_s);
    if (!p->has_budget || p->spent < p->budget)
        return true;
    renewal(p, now_s, at);
    ledger_money(p->budget, money);
    api_fail(e, 429, NULL, "insufficient_quota",
             "the budget of %s %s for a day, %s dollars, is used up; it is renewed at %s", payer_kind_name(p->kind),
             p->name, money, at);
    const int64_t left_s = (p->day + 1) * PAYER_DAY_S - now_s;
    /* A clock that was set back by days must not overflow the field. */
    e->retry_ms = left_s < 2 * PAYER_DAY_S ? (uint32_t)left_s * 1000 : 2u * PAYER_DAY_S * 1000;
    return false;
}

bool payer_warns(struct payer *p, int64_t now_s, char *out, size_t n)
{
    char spent[LEDGER_MONEY_BYTES], budget[LEDGER_MONEY_BYTES];
    roll(p, now_s);
    /* spent × 100 ÷ budget without an overflow. */
    const unsigned percent = p->has_budget && p->budget ? (unsigned)((double)p->spent * 100 / (double)p->budget) : 0;
    if (percent < WARN_PERCENT)
        return false;
    ledger_money(p->spent, spent);
    ledger_money(p->budget, budget);
    snprintf(out, n, "%s %s has used %u %% of its budget for today: %s of %s dollars", payer_kind_name(p->kind),
             p->name, percent, spent, budget);
    return true;
}
