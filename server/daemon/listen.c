/* Listening sockets. */
#include "base/log.h"
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"
#include "server/wire/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define ACCEPTS_PER_TURN 16
#define PAUSE_MS 250

struct listener {
    struct daemon *d;
    int fd;
    struct event *acceptable, *resume;
    bool has_key;
    struct key256 key;
    char text[160];
    bool is_unix;
    char path[108];
    dev_t device; /* these identify the socket file, to remove only our own */
    ino_t inode;
};

struct listeners {
    struct listener *items[DAEMON_MAX_LISTENERS];
    size_t n;
};

static void on_resume(evutil_socket_t fd, short what, void *context)
{
    struct listener *l = context;
    (void)fd;
    (void)what;
    event_add(l->acceptable, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *context)
{
    struct listener *l = context;
    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* The listener stays readable while a client waits; without a pause the loop would spin on it. */
                struct timeval pause = {.tv_usec = PAUSE_MS * 1000};
                event_del(l->acceptable);
                event_add(l->resume, &pause);
                quire_log(QUIRE_LOG_WARN, "server", "%s: accept: %m", l->text);
            }
            return;
        }
        int yes = 1;
        if (!l->is_unix) {
            setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
        }
        connection_open(l->d, wire_stream_of_socket(l->d->base, client), l->has_key ? &l->key : NULL, NULL);
    }
}

/* Removes a socket file on which no process listens: a process that has exited left it. */
static int remove_stale(const struct wire_address *address, const char *path, struct quire_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? QUIRE_OK : quire_fail(err, QUIRE_IO, "unix:%s: %m", path);
    if (!S_ISSOCK(st.st_mode))
        return quire_fail(err, QUIRE_INVALID, "unix:%s: exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return quire_fail(err, QUIRE_IO, "unix:%s: socket: %m", path);
    bool refused = connect(fd, (const struct sockaddr *)&address->socket, address->n_socket) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    if (!refused)
        return quire_fail(err, QUIRE_INVALID, "unix:%s: somebody listens there already", path);
    if (unlink(path) != 0)
        return quire_fail(err, QUIRE_IO, "unix:%s: cannot be replaced: %m", path);
    return QUIRE_OK;
}

static int bind_unix(struct listener *l, const struct wire_address *address, struct quire_error *err)
{
    const char *path = ((const struct sockaddr_un *)&address->socket)->sun_path;
    struct stat st;
    int status = remove_stale(address, path, err);
    if (status)
        return status;
    /* No client can connect between bind() and listen(), so the mode is right from the first client on. */
    if (bind(l->fd, (const struct sockaddr *)&address->socket, address->n_socket) != 0)
        return quire_fail(err, QUIRE_IO, "unix:%s: bind: %m", path);
    memcpy(l->path, path, strlen(path) + 1);
    if (lstat(path, &st) != 0)
        return quire_fail(err, QUIRE_IO, "unix:%s: %m", path);
    l->device = st.st_dev;
    l->inode = st.st_ino;
    if (chmod(path, 0600) != 0)
        return quire_fail(err, QUIRE_IO, "unix:%s: chmod: %m", path);
    return QUIRE_OK;
}

static int bind_tcp(struct listener *l, const struct wire_address *address, const char *text, struct quire_error *err)
{
    int yes = 1;
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(l->fd, (const struct sockaddr *)&address->socket, address->n_socket) != 0)
        return quire_fail(err, QUIRE_IO, "%s: bind: %m", text);
    return QUIRE_OK;
}

static int listener_open(struct listener *l, const char *text, struct quire_error *err)
{
    struct wire_address addresses[WIRE_MAX_ADDRESSES];
    size_t n;
    int status = wire_address_parse(text, addresses, &n, err);
    if (status)
        return status;
    struct wire_address *address = &addresses[0];
    l->is_unix = address->is_unix;
    if (!l->is_unix && !l->has_key)
        return quire_fail(err, QUIRE_INVALID, "%s: tcp needs a shared key file", text);
    l->fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return quire_fail(err, QUIRE_IO, "%s: socket: %m", text);
    status = l->is_unix ? bind_unix(l, address, err) : bind_tcp(l, address, text, err);
    if (status)
        return status;
    if (listen(l->fd, BACKLOG) != 0)
        return quire_fail(err, QUIRE_IO, "%s: listen: %m", text);
    if (!l->is_unix) {
        address->n_socket = sizeof address->socket;
        getsockname(l->fd, (struct sockaddr *)&address->socket, &address->n_socket);
    }
    wire_address_text(address, l->text, sizeof l->text);
    l->acceptable = event_new(l->d->base, l->fd, EV_READ | EV_PERSIST, on_acceptable, l);
    l->resume = evtimer_new(l->d->base, on_resume, l);
    if (!l->acceptable || !l->resume || event_add(l->acceptable, NULL))
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", text);
    return QUIRE_OK;
}

static void listener_close(struct listener *l)
{
    struct stat st;
    if (l->acceptable)
        event_free(l->acceptable);
    if (l->resume)
        event_free(l->resume);
    if (l->fd >= 0)
        close(l->fd);
    if (l->path[0] && lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        unlink(l->path);
    free(l);
}

void listeners_close(struct daemon *d)
{
    struct listeners *all = d->listeners;
    if (!all)
        return;
    while (all->n > 0)
        listener_close(all->items[--all->n]);
    free(all);
    d->listeners = NULL;
}

int daemon_listen(struct daemon *d, const char *address, const char *key_file, struct quire_error *err)
{
    if (!d->engine)
        return quire_fail(err, QUIRE_INTERNAL, "daemon: a listener before its engine");
    if (!d->listeners)
        d->listeners = calloc(1, sizeof *d->listeners);
    if (!d->listeners)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", address);
    if (d->listeners->n == DAEMON_MAX_LISTENERS)
        return quire_fail(err, QUIRE_EXHAUSTED, "%s: at most %d addresses to listen at", address, DAEMON_MAX_LISTENERS);
    struct listener *l = malloc(sizeof *l);
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", address);
    *l = (struct listener){.d = d, .fd = -1, .has_key = key_file != NULL};
    int status = key_file ? wire_key_read(key_file, &l->key, err) : QUIRE_OK;
    if (!status)
        status = listener_open(l, address, err);
    if (status)
        listener_close(l);
    else
        d->listeners->items[d->listeners->n++] = l;
    return status;
}

const char *daemon_address(const struct daemon *d, size_t index)
{
    return d->listeners && index < d->listeners->n ? d->listeners->items[index]->text : NULL;
}
