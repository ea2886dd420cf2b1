#include "parallel/hosts/call.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Maximum wait for one answer: another program may listen there, or a peer hangs. */
#define ANSWER_MS 5000u

static int wait_for(int fd, short events, uint64_t until_ms, struct quire_error *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    const uint64_t now = quire_now_ms();
    if (poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0) == 1)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNAVAILABLE, "no answer");
}

int call_read(int fd, void *to, size_t n, uint64_t until_ms, struct quire_error *err)
{
    unsigned char *at = to;
    while (n > 0) {
        ssize_t got = recv(fd, at, n, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            n -= (size_t)got;
            continue;
        }
        if (got == 0)
            return quire_fail(err, QUIRE_UNAVAILABLE, "the peer closed the connection");
        if (errno != EAGAIN && errno != EINTR)
            return quire_fail(err, QUIRE_UNAVAILABLE, "%s", strerror(errno));
        int status = wait_for(fd, POLLIN, until_ms, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

/* On a connection with little data sent so far, so that this never blocks. */
static int say(int fd, const void *bytes, size_t n, struct quire_error *err)
{
    if (send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNAVAILABLE, "the peer closed the connection");
}

static int connect_to(const struct sockaddr_storage *address, uint64_t until_ms, int *fd, struct quire_error *err)
{
    const int yes = 1;
    int why = 0;
    socklen_t n = sizeof why;
    *fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return quire_fail(err, QUIRE_UNAVAILABLE, "%s", strerror(errno));
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const socklen_t n_address = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                               : sizeof(struct sockaddr_in);
    if (connect(*fd, (const struct sockaddr *)address, n_address) == 0)
        return QUIRE_OK;
    if (errno != EINPROGRESS)
        return quire_fail(err, QUIRE_UNAVAILABLE, "%s", strerror(errno));
    int status = wait_for(*fd, POLLOUT, until_ms, err);
    if (status == QUIRE_OK && (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0 || why != 0))
        status = quire_fail(err, QUIRE_UNAVAILABLE, "%s", strerror(why));
    return status;
}

static int prove(const struct rank_listener_own *own, const struct join_hello *hello, int fd, uint64_t until_ms,
                 struct join_welcome *welcome, struct quire_error *err)
{
    unsigned char said[JOIN_HELLO_BYTES], challenge[JOIN_CHALLENGE_BYTES], proof[JOIN_PROOF_BYTES],
        answer[JOIN_WELCOME_BYTES];
    join_hello_write(hello, said);
    int status = say(fd, said, sizeof said, err);
    if (status == QUIRE_OK)
        status = call_read(fd, challenge, sizeof challenge, until_ms, err);
    if (status != QUIRE_OK)
        return status;
    /* Not a rank of this version or group. This may be temporary, such as the last owner of the port. */
    if (join_challenge_read(challenge, hello->to, err) != QUIRE_OK)
        return QUIRE_UNAVAILABLE;
    join_proof_write(own->key, said, challenge, proof);
    status = say(fd, proof, sizeof proof, err);
    if (status == QUIRE_OK)
        status = call_read(fd, answer, sizeof answer, until_ms, err);
    if (status == QUIRE_OK)
        status = join_welcome_read(own->key, said, challenge, answer, welcome, err);
    if (status == QUIRE_OK && welcome->status != QUIRE_OK)
        status = quire_fail(err, welcome->status == QUIRE_UNAVAILABLE ? QUIRE_INVALID : welcome->status, "%s",
                            welcome->text);
    return status;
}

int call_rank(const struct rank_listener_own *own, uint32_t to, enum join_kind kind, uint16_t port,
              const struct sockaddr_storage *address, uint64_t until_ms, int *fd, struct join_welcome *welcome,
              struct quire_error *err)
{
    struct join_hello hello = {.kind = kind,
                               .carrier = own->carrier,
                               .rank = own->rank,
                               .size = own->size,
                               .to = to,
                               .process = (uint32_t)getpid(),
                               .port = port};
    const uint64_t answer_ms = quire_now_ms() + ANSWER_MS;
    if (!own->has_secret && !rank_listener_is_loopback(address))
        return quire_fail(err, QUIRE_INVALID,
                          "not a loopback address, which needs a secret: set QUIRE_GROUP_SECRET to the same value "
                          "for every rank");
    snprintf(hello.host, sizeof hello.host, "%s", own->host);
    quire_random(hello.nonce, sizeof hello.nonce);
    until_ms = answer_ms < until_ms ? answer_ms : until_ms;
    int status = connect_to(address, until_ms, fd, err);
    if (status == QUIRE_OK)
        status = prove(own, &hello, *fd, until_ms, welcome, err);
    if (status != QUIRE_OK && *fd >= 0)
        close(*fd);
    return status;
}
