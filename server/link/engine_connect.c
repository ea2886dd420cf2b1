/* engine_client_connect(): from an address to a connected descriptor. */
#include "server/link/engine_client.h"

#include "base/clock.h"
#include "server/wire/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#define BACKLOG_RETRY_MS 10

/* Returns 0 or an errno. */
static int wait_connected(int fd, int64_t until_ms)
{
    for (;;) {
        int64_t left = until_ms - (int64_t)quire_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n == 0)
            return ETIMEDOUT;
        if (n > 0)
            break;
        if (errno != EINTR)
            return errno;
    }
    int error = 0;
    socklen_t n_error = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n_error) == 0 ? error : errno;
}

/* Returns 0 or an errno. */
static int try_address(const struct wire_address *address, int64_t until_ms, int fd)
{
    for (;;) {
        if (connect(fd, (const struct sockaddr *)&address->socket, address->n_socket) == 0)
            return 0;
        if (errno == EINPROGRESS)
            return wait_connected(fd, until_ms);
        /* A unix socket whose backlog is full returns EAGAIN at once instead of waiting. */
        if (errno != EAGAIN && errno != EINTR)
            return errno;
        if ((int64_t)quire_now_ms() >= until_ms)
            return ETIMEDOUT;
        poll(NULL, 0, BACKLOG_RETRY_MS);
    }
}

/* Keepalive detects a dead host in half a minute. Before the first data from an engine, nothing else distinguishes a
 * dead host from a stopped engine. */
static void watch_host(int fd)
{
    const int yes = 1, idle_s = 10, every_s = 5, n = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
}

int engine_client_connect(const char *address, int timeout_ms, int *fd, struct quire_error *err)
{
    struct wire_address addresses[WIRE_MAX_ADDRESSES];
    size_t n;
    int64_t until_ms = (int64_t)quire_now_ms() + timeout_ms;
    int error = ETIMEDOUT;
    *fd = -1;
    int status = wire_address_parse(address, addresses, &n, err);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        int s = socket(addresses[i].socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0)
            return quire_fail(err, QUIRE_IO, "%s: socket: %m", address);
        error = try_address(&addresses[i], until_ms, s);
        if (error == 0) {
            int yes = 1;
            if (!addresses[i].is_unix) {
                setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                watch_host(s);
            }
            *fd = s;
            return QUIRE_OK;
        }
        close(s);
    }
    errno = error;
    return quire_fail(err, QUIRE_IO, "%s: %m", address);
}
