#include "server/gateway/account/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PICO UINT64_C(1000000000000)

/* A sum that stays at the largest amount: 18 million dollars. */
static uint64_t add(uint64_t sum, uint64_t tokens, uint64_t price)
{
    uint64_t part;
    if (__builtin_mul_overflow(tokens, price, &part) || __builtin_add_overflow(sum, part, &sum))
        return UINT64_MAX;
    return sum;
}

uint64_t ledger_cost(const struct gateway_price *price, const struct ledger_usage *usage)
{
    const uint64_t cached = usage->cached_input < usage->input ? usage->cached_input : usage->input;
    uint64_t cost = add(0, usage->input - cached, price->input);
    cost = add(cost, cached, price->cached_input);
    return add(cost, usage->output, price->output);
}

void ledger_money(uint64_t picodollars, char out[LEDGER_MONEY_BYTES])
{
    int n = snprintf(out, LEDGER_MONEY_BYTES, "%" PRIu64 ".%012" PRIu64, picodollars / PICO, picodollars % PICO);
    while (out[n - 1] == '0')
        n--;
    out[out[n - 1] == '.' ? n - 1 : n] = '\0';
}
