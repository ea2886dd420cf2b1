#include "server/http/local_listener.h"

#include "base/log.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define AGAIN_US 100000 /* after a failed accept(), mostly for lack of descriptors: connections end meanwhile */

struct local_listener {
    struct evconnlistener *listener;
    struct event *again;
    bool failed; /* once is logged */
    void (*on_client)(void *context, int fd);
    void *context;
    char name[16]; /* five digits */
};

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int n_from,
                      void *context)
{
    struct local_listener *l = context;
    struct ucred peer;
    socklen_t n = sizeof peer;
    (void)listener, (void)from, (void)n_from;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid == getpid())
        l->on_client(l->context, fd);
    else
        evutil_closesocket(fd);
}

/* Without a pause the loop would do nothing else. */
static void on_error(struct evconnlistener *listener, void *context)
{
    const struct timeval later = {.tv_usec = AGAIN_US};
    struct local_listener *l = context;
    if (!l->failed)
        quire_log(QUIRE_LOG_WARN, "http", "the process cannot connect to itself, and tries again: %s",
                  evutil_socket_error_to_string(evutil_socket_geterror(evconnlistener_get_fd(listener))));
    l->failed = true;
    evconnlistener_disable(listener);
    event_add(l->again, &later);
}

static void on_again(evutil_socket_t fd, short what, void *context)
{
    struct local_listener *l = context;
    (void)fd, (void)what;
    evconnlistener_enable(l->listener);
}

static int bind_name(struct local_listener *l, int fd, struct quire_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t n = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address.sun_family) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0)
        return quire_fail(err, QUIRE_IO, "no abstract Unix socket can be opened: %s", strerror(errno));
    const size_t n_name = n - offsetof(struct sockaddr_un, sun_path) - 1;
    if (n_name >= sizeof l->name)
        return quire_fail(err, QUIRE_INTERNAL, "the kernel's name of a socket has %zu bytes", n_name);
    memcpy(l->name, address.sun_path + 1, n_name);
    return QUIRE_OK;
}

int local_listener_open(struct event_base *base, void (*on_client)(void *context, int fd), void *context,
                        struct local_listener **out, struct quire_error *err)
{
    struct local_listener *l = *out = calloc(1, sizeof *l);
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->on_client = on_client;
    l->context = context;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int status = bind_name(l, fd, err);
    if (status == QUIRE_OK) {
        l->again = evtimer_new(base, on_again, l);
        l->listener = l->again ? evconnlistener_new(base, on_accept, l, LEV_OPT_CLOSE_ON_FREE, BACKLOG, fd) : NULL;
        status = l->listener ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status == QUIRE_OK) {
        evconnlistener_set_error_cb(l->listener, on_error);
        return QUIRE_OK;
    }
    if (l->again)
        event_free(l->again);
    if (fd >= 0)
        close(fd);
    free(l);
    *out = NULL;
    return status;
}

void local_listener_close(struct local_listener *l)
{
    if (!l)
        return;
    evconnlistener_free(l->listener);
    event_free(l->again);
    free(l);
}

const char *local_listener_name(const struct local_listener *l)
{
    return l->name;
}
