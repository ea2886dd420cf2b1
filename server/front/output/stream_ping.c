#include "server/front/output/stream_ping.h"

#include "base/clock.h"

#include <event2/event.h>
#include <stdlib.h>

struct stream_ping {
    struct event *timer;
    uint64_t after_ms, last_write_us;
    void (*ping)(void *context);
    void *context;
};

static void on_time(evutil_socket_t fd, short what, void *context)
{
    struct stream_ping *p = context;
    uint64_t now = quire_now_us(), silent_ms = (now - p->last_write_us) / 1000;
    uint64_t wait_ms = p->after_ms;
    (void)fd;
    (void)what;
    if (silent_ms >= wait_ms) {
        p->ping(p->context);
        p->last_write_us = now;
    } else {
        wait_ms -= silent_ms;
    }
    struct timeval tv = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    event_add(p->timer, &tv);
}

struct stream_ping *stream_ping_new(struct event_base *base, uint64_t after_ms, void (*ping)(void *context),
                                    void *context)
{
    struct stream_ping *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (struct stream_ping){.timer = event_new(base, -1, 0, on_time, p),
                              .after_ms = after_ms,
                              .last_write_us = quire_now_us(),
                              .ping = ping,
                              .context = context};
    if (!p->timer) {
        free(p);
        return NULL;
    }
    on_time(-1, 0, p);
    return p;
}

void stream_ping_free(struct stream_ping *p)
{
    if (p)
        event_free(p->timer);
    free(p);
}

void stream_ping_wrote(struct stream_ping *p, uint64_t at_us)
{
    if (p)
        p->last_write_us = at_us;
}
