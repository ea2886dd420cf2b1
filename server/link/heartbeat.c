#include "server/link/heartbeat.h"

#include <stdlib.h>

#define ASK_EVERY_MS 500
#define MOST_SILENT (HEARTBEAT_LOST_MS / ASK_EVERY_MS) /* times */

struct heartbeat {
    struct heartbeat_calls calls;
    struct event *ask;
    unsigned n_silent;
};

static void wait_a_while(struct heartbeat *p)
{
    const struct timeval time = {.tv_usec = ASK_EVERY_MS * 1000};
    event_add(p->ask, &time);
}

static void on_ask(evutil_socket_t fd, short what, void *context)
{
    struct heartbeat *p = context;
    (void)fd;
    (void)what;
    p->n_silent = p->calls.lives(p->calls.context) ? 0 : p->n_silent + 1;
    if (p->n_silent < MOST_SILENT)
        wait_a_while(p);
    else
        p->calls.lost(p->calls.context);
}

struct heartbeat *heartbeat_new(struct event_base *base, const struct heartbeat_calls *calls)
{
    struct heartbeat *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->calls = *calls;
    p->ask = evtimer_new(base, on_ask, p);
    if (!p->ask) {
        free(p);
        return NULL;
    }
    return p;
}

void heartbeat_begin(struct heartbeat *p)
{
    p->n_silent = 0;
    wait_a_while(p);
}

void heartbeat_end(struct heartbeat *p)
{
    event_del(p->ask);
}

bool heartbeat_is_felt(const struct heartbeat *p)
{
    return p->n_silent == 0;
}

void heartbeat_free(struct heartbeat *p)
{
    if (!p)
        return;
    event_free(p->ask);
    free(p);
}
