#include "base/clock.h"
#include "server/gateway/gateway_internal.h"

#define PROBE_MS 500
#define SAVE_S 1

void gateway_wants_probe(struct gateway *g)
{
    const struct timeval tv = {.tv_usec = PROBE_MS * 1000};
    if (!evtimer_pending(g->probe, NULL))
        event_add(g->probe, &tv);
}

void gateway_wants_save(struct gateway *g)
{
    const struct timeval tv = {.tv_sec = SAVE_S};
    if (!evtimer_pending(g->save, NULL))
        event_add(g->save, &tv);
}

void gateway_wants_tick(struct gateway *g, uint32_t ms)
{
    const uint64_t at_ms = quire_now_ms() + ms;
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    if (g->tick_ms > 0 && g->tick_ms <= at_ms)
        return;
    g->tick_ms = at_ms;
    event_add(g->tick, &tv);
}
