#include "server/cache/redis/resolve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct redis_resolve { /* shared by the loop and the thread; the last one to release it frees it */
    atomic_uint n_holders;
    char host[256], port[6];
    int wake;
    atomic_bool is_done; /* true: the loop owns the fields below */
    int code;
    struct addrinfo *found;

    struct event *on_done; /* the loop's */
    redis_resolved done;
    void *context;
};

static void let_go(struct redis_resolve *r)
{
    if (atomic_fetch_sub(&r->n_holders, 1) > 1)
        return;
    if (r->found)
        freeaddrinfo(r->found);
    if (r->wake >= 0)
        close(r->wake);
    free(r);
}

static void *resolver(void *context)
{
    struct redis_resolve *r = context;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const uint64_t one = 1;
    r->code = getaddrinfo(r->host, r->port, &hints, &r->found);
    atomic_store(&r->is_done, true);
    ssize_t n = write(r->wake, &one, sizeof one);
    (void)n; /* a fresh eventfd takes it */
    let_go(r);
    return NULL;
}

static void on_done(evutil_socket_t fd, short what, void *context)
{
    struct redis_resolve *r = context;
    (void)fd, (void)what;
    if (!atomic_load(&r->is_done))
        return;
    struct addrinfo *found = r->found;
    const char *why = r->code ? gai_strerror(r->code) : "it has no address";
    redis_resolved done = r->done;
    void *to = r->context;
    r->found = NULL;
    redis_resolve_stop(r);
    done(to, found, why);
}

struct redis_resolve *redis_resolve_start(struct event_base *base, const char *host, const char *port,
                                          redis_resolved done, void *context)
{
    struct redis_resolve *r = calloc(1, sizeof *r);
    pthread_t thread;
    pthread_attr_t detached;
    if (!r)
        return NULL;
    atomic_store(&r->n_holders, 1);
    snprintf(r->host, sizeof r->host, "%s", host);
    snprintf(r->port, sizeof r->port, "%s", port);
    r->done = done;
    r->context = context;
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->on_done = r->wake < 0 ? NULL : event_new(base, r->wake, EV_READ | EV_PERSIST, on_done, r);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    atomic_store(&r->n_holders, 2);
    const bool started = r->on_done && event_add(r->on_done, NULL) == 0 &&
                         pthread_create(&thread, &detached, resolver, r) == 0;
    pthread_attr_destroy(&detached);
    if (started)
        return r;
    atomic_store(&r->n_holders, 1);
    redis_resolve_stop(r);
    return NULL;
}

void redis_resolve_stop(struct redis_resolve *r)
{
    if (!r)
        return;
    if (r->on_done)
        event_free(r->on_done);
    r->on_done = NULL;
    let_go(r);
}
