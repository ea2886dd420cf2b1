#include "parallel/hosts/rank_listener.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool rank_listener_is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    if (address->ss_family == AF_INET)
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return address->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

int rank_listener_open(struct rank_listener *d, const struct rank_listener_own *own, const struct sockaddr *address,
                       socklen_t n_address, struct quire_error *err)
{
    const int yes = 1;
    memset(d, 0, sizeof *d);
    d->own = own;
    for (size_t i = 0; i < RANK_LISTENER_SLOTS; i++)
        d->callers[i].fd = -1;
    d->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->fd >= 0)
        setsockopt(d->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (d->fd >= 0 && bind(d->fd, address, n_address) == 0 && listen(d->fd, RANK_LISTENER_SLOTS) == 0)
        return QUIRE_OK;
    const int why = errno;
    rank_listener_close(d);
    return quire_fail(err, why == EADDRNOTAVAIL ? QUIRE_NOT_FOUND : QUIRE_IO, "%s", strerror(why));
}

static void forget(struct rank_listener_caller *c)
{
    close(c->fd);
    c->fd = -1;
}

void rank_listener_close(struct rank_listener *d)
{
    for (size_t i = 0; i < RANK_LISTENER_SLOTS; i++)
        if (d->callers[i].fd >= 0)
            forget(&d->callers[i]);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

uint16_t rank_listener_port(const struct rank_listener *d)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    getsockname(d->fd, (struct sockaddr *)&at, &n);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                                          : ((struct sockaddr_in *)(void *)&at)->sin_port);
}

static void note_refused(struct rank_listener *d, const struct sockaddr_storage *address, const char *why)
{
    char host[64] = "?";
    getnameinfo((const struct sockaddr *)address, sizeof *address, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    quire_fail(&d->refused, QUIRE_INVALID, "%s: %.300s", host, why);
}

/* ---- calls ---- */

static void take_call(struct rank_listener *d)
{
    const int yes = 1;
    struct rank_listener_caller *slot = &d->callers[0];
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    int fd = accept4(d->fd, (struct sockaddr *)&address, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!d->own->has_secret && !rank_listener_is_loopback(&address)) {
        note_refused(d, &address, "without QUIRE_GROUP_SECRET, ranks may connect from loopback addresses only");
        close(fd);
        return;
    }
    for (size_t i = 0; i < RANK_LISTENER_SLOTS && slot->fd >= 0; i++)
        if (d->callers[i].fd < 0 || d->callers[i].until_ms < slot->until_ms)
            slot = &d->callers[i];
    if (slot->fd >= 0)
        forget(slot);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *slot = (struct rank_listener_caller){.fd = fd, .address = address, .until_ms = quire_now_ms() + RANK_LISTENER_MS};
}

/* On a connection with nothing sent so far, so that this much always fits into the buffer. */
static bool say(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* The caller has another secret. The answer contains no data of this group. */
static void turn_away(struct rank_listener_caller *c)
{
    struct key256 nobodys;
    const struct join_welcome welcome = {.status = QUIRE_INVALID};
    unsigned char frame[JOIN_WELCOME_BYTES];
    quire_random(&nobodys, sizeof nobodys);
    join_welcome_write(&nobodys, c->hello, c->challenge, &welcome, frame);
    say(c->fd, frame, sizeof frame);
}

/* Returns true if the caller has completed the exchange and belongs to the group. */
static bool hear(struct rank_listener *d, struct rank_listener_caller *c, struct quire_error *err)
{
    struct join_hello hello;
    unsigned char *to = c->has_hello ? c->proof : c->hello;
    const size_t n = c->has_hello ? JOIN_PROOF_BYTES : JOIN_HELLO_BYTES;
    ssize_t got = recv(c->fd, to + c->n_in, n - c->n_in, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        quire_fail(err, QUIRE_IO, "hung up");
        return false;
    }
    c->n_in += (size_t)got;
    if (c->n_in < n)
        return false;
    c->n_in = 0;
    if (c->has_hello) {
        if (join_proof_check(d->own->key, c->hello, c->challenge, c->proof, err) == QUIRE_OK)
            return true;
        turn_away(c);
        return false;
    }
    if (join_hello_read(c->hello, &hello, err) != QUIRE_OK)
        return false;
    c->has_hello = true;
    join_challenge_write(d->own->rank, c->challenge);
    if (!say(c->fd, c->challenge, sizeof c->challenge))
        quire_fail(err, QUIRE_IO, "hung up");
    return false;
}

/* Returns false if there is no such caller. Its slot stays in use until it is answered. */
static bool look_at(struct rank_listener *d, struct rank_listener_caller *c, struct rank_listener_arrival *out)
{
    struct quire_error wrong = {.text = ""};
    if (hear(d, c, &wrong)) {
        out->fd = c->fd;
        out->address = c->address;
        return join_hello_read(c->hello, &out->hello, &wrong) == QUIRE_OK;
    }
    if (wrong.text[0]) {
        note_refused(d, &c->address, wrong.text);
        forget(c);
    }
    return false;
}

bool rank_listener_wait(struct rank_listener *d, int ms, struct rank_listener_arrival *out)
{
    struct pollfd fds[RANK_LISTENER_SLOTS + 1];
    uint64_t now = quire_now_ms();
    for (size_t i = 0; i < RANK_LISTENER_SLOTS; i++) {
        struct rank_listener_caller *c = &d->callers[i];
        if (c->fd >= 0 && now >= c->until_ms) {
            note_refused(d, &c->address, "sent no data within the time limit");
            forget(c);
        }
        fds[i] = (struct pollfd){.fd = c->fd, .events = POLLIN};
    }
    fds[RANK_LISTENER_SLOTS] = (struct pollfd){.fd = d->fd, .events = POLLIN};
    if (poll(fds, RANK_LISTENER_SLOTS + 1, ms) <= 0)
        return false;
    for (size_t i = 0; i < RANK_LISTENER_SLOTS; i++)
        if (fds[i].fd >= 0 && fds[i].revents && look_at(d, &d->callers[i], out))
            return true;
    if (fds[RANK_LISTENER_SLOTS].revents)
        take_call(d);
    return false;
}

static struct rank_listener_caller *caller_of(struct rank_listener *d, const struct rank_listener_arrival *arrival)
{
    struct rank_listener_caller *c = d->callers;
    while (c->fd != arrival->fd)
        c++;
    return c;
}

void rank_listener_hang_up(struct rank_listener *d, const struct rank_listener_arrival *arrival)
{
    forget(caller_of(d, arrival));
}

bool rank_listener_answer(struct rank_listener *d, const struct rank_listener_arrival *arrival, int status,
                          const char *why)
{
    struct join_welcome welcome = {.status = (enum quire_status)status, .process = (uint32_t)getpid()};
    unsigned char frame[JOIN_WELCOME_BYTES];
    struct rank_listener_caller *c = caller_of(d, arrival);
    snprintf(welcome.host, sizeof welcome.host, "%s", d->own->host);
    snprintf(welcome.text, sizeof welcome.text, "%s", why);
    join_welcome_write(d->own->key, c->hello, c->challenge, &welcome, frame);
    const bool is_said = say(c->fd, frame, sizeof frame);
    if (status != QUIRE_OK)
        note_refused(d, &c->address, why);
    if (status != QUIRE_OK || !is_said)
        close(c->fd);
    c->fd = -1;
    return is_said;
}

/* ---- after the meeting ---- */

struct saved_listener {
    struct rank_listener listener; /* first member, so that a pointer to one is a pointer to the other */
    struct rank_listener_own own;
    struct key256 key;
};

struct rank_listener *rank_listener_keep(struct rank_listener *from)
{
    struct saved_listener *kept = malloc(sizeof *kept);
    if (!kept)
        return NULL;
    kept->listener = *from;
    kept->own = *from->own;
    kept->key = *from->own->key;
    kept->own.key = &kept->key;
    kept->listener.own = &kept->own;
    for (size_t i = 0; i < RANK_LISTENER_SLOTS; i++)
        from->callers[i].fd = -1;
    from->fd = -1;
    return &kept->listener;
}

void rank_listener_give_up(struct rank_listener *listener)
{
    struct saved_listener *kept = (struct saved_listener *)(void *)listener;
    if (!kept)
        return;
    rank_listener_close(listener);
    explicit_bzero(&kept->key, sizeof kept->key);
    free(kept);
}
