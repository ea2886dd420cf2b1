/* Reports to the source below how often cached responses were served. */
#include "server/cache/cache_internal.h"

#include "base/encoding/little_endian.h"

#include <string.h>

#define SEND_AFTER_US 200000

uint64_t hit_report_name(const struct key256 *key)
{
    return le_load_u64(key->bytes);
}

static void send_later(struct hit_report *r)
{
    const struct timeval soon = {.tv_usec = SEND_AFTER_US};
    if (!event_pending(r->due, EV_TIMEOUT, NULL))
        event_add(r->due, &soon);
}

void hit_report_send(struct response_cache *c)
{
    struct hit_report *r = &c->hit_report;
    const struct completion_source *below = &c->below;
    if (r->n == 0)
        return;
    if (below->report_hits && !below->report_hits(below->self, r->items, r->n)) {
        send_later(r);
        return;
    }
    r->n = 0;
    event_del(r->due);
}

static void on_due(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    hit_report_send(context);
}

void hit_report_add(struct response_cache *c, const struct key256 *key, uint64_t n_hits)
{
    struct hit_report *r = &c->hit_report;
    const uint64_t name = hit_report_name(key);
    const uint32_t item[] = {(uint32_t)name, (uint32_t)(name >> 32),
                             n_hits > UINT32_MAX ? UINT32_MAX : (uint32_t)n_hits};
    uint32_t at = 0;
    if (name == 0)
        r->n = r->next = 0;
    while (at < r->n && memcmp(&r->items[3 * at], item, 2 * sizeof item[0]) != 0)
        at++;
    if (at == HITS_MAX)
        at = r->next++ % HITS_MAX;
    else if (at == r->n)
        r->n++;
    memcpy(&r->items[3 * at], item, sizeof item);
    if (name == 0 || r->n == HITS_MAX)
        hit_report_send(c);
    else
        send_later(r);
}

int hit_report_open(struct response_cache *c, struct quire_error *err)
{
    c->hit_report.due = evtimer_new(c->base, on_due, c);
    return c->hit_report.due ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
}

void hit_report_close(struct response_cache *c)
{
    if (c->hit_report.due)
        event_free(c->hit_report.due);
}
