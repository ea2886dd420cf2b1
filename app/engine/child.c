#include "app/engine/child.h"

#include "server/link/supervisor.h"

#include <signal.h>
#include <stdlib.h>

struct engine_child {
    struct event_base *base;
    int front_fd; /* the child's end of the connection */
    int life_fd;  /* readable when the parent is gone */
    struct event *life;
};

int engine_child_join(struct engine_child **out, struct quire_error *err)
{
    *out = NULL;
    if (!supervisor_is_child())
        return QUIRE_OK;
    struct engine_child *c = *out = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return supervisor_join(&c->front_fd, &c->life_fd, err);
}

static void on_parent_gone(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    event_base_loopbreak(((struct engine_child *)context)->base);
}

int engine_child_serve(struct engine_child *c, struct event_base *base, struct daemon *daemon, struct quire_error *err)
{
    c->base = base;
    c->life = event_new(base, c->life_fd, EV_READ, on_parent_gone, c);
    if (!c->life || event_add(c->life, NULL) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return daemon_add_connection(daemon, wire_stream_of_socket(base, c->front_fd), err);
}

void engine_child_end(struct engine_child *c)
{
    if (!c)
        return;
    if (c->life)
        event_free(c->life);
    free(c);
}
