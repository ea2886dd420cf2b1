#include "server/cache/hit_report.h"

#include "base/encoding/little_endian.h"

#include <stdlib.h>
#include <string.h>

#define SEND_AFTER_US 200000
#define HITS_MAX 64u

struct hit_report {
    const struct completion_source *below;
    struct event *due; /* pending while something waits */
    uint32_t n, next; /* next: index of the entry that is overwritten when all are used */
    uint32_t items[3 * HITS_MAX]; /* as completion_source.report_hits takes them */
};

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

void hit_report_send(struct hit_report *r)
{
    const struct completion_source *below = r->below;
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

void hit_report_add(struct hit_report *r, const struct key256 *key, uint64_t n_hits)
{
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
        hit_report_send(r);
    else
        send_later(r);
}

void hit_report_drop(struct hit_report *r)
{
    r->n = 0;
}

struct hit_report *hit_report_new(struct event_base *base, const struct completion_source *below)
{
    struct hit_report *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->below = below;
    r->due = evtimer_new(base, on_due, r);
    if (!r->due) {
        free(r);
        return NULL;
    }
    return r;
}

void hit_report_free(struct hit_report *r)
{
    if (!r)
        return;
    event_free(r->due);
    free(r);
}
