#include "parallel/hosts/meeting.h"

#include "base/clock.h"
#include "base/log.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAY_EVERY_MS 10000u
#define AGAIN_MS 100 /* until rank 0 is called again */

/* ---- links ---- */

static int *link_of(struct peer_link *link, enum join_kind kind)
{
    return kind == JOIN_DATA ? &link->data : &link->control;
}

static bool is_whole(const struct rank_listener_own *own, const struct peer_link *link)
{
    return link->control >= 0 && (own->carrier != JOIN_BY_TCP || link->data >= 0);
}

static void name_link(struct peer_link *link, uint32_t rank, const char *host, uint32_t process)
{
    snprintf(link->name, sizeof link->name, "rank %u (%.50s, process %u)", rank, host, process);
}

/* Returns whether the peer has closed the connection. */
static bool is_gone(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void drop(struct peer_link *link)
{
    if (link->control >= 0)
        close(link->control);
    if (link->data >= 0)
        close(link->data);
    link->control = link->data = -1;
}

/* ---- being called ---- */

static int judge(const struct rank_listener_own *own, const struct join_hello *hello, struct peer_link *links,
                 char *why, size_t n_why)
{
    if (hello->size != own->size) {
        snprintf(why, n_why, "rank %u expects %u ranks, but rank %u expects %u", hello->rank, hello->size, own->rank,
                 own->size);
        return QUIRE_INVALID;
    }
    if (hello->to != own->rank) {
        snprintf(why, n_why, "rank %u called rank %u, but reached this rank %u", hello->rank, hello->to, own->rank);
        return QUIRE_INVALID;
    }
    if (hello->carrier != own->carrier || (hello->kind == JOIN_DATA && own->carrier != JOIN_BY_TCP)) {
        snprintf(why, n_why, "rank %u uses the transport %s, but rank %u uses %s (--rank-transport)", hello->rank,
                 hello->carrier == JOIN_BY_MPI ? "MPI" : "TCP", own->rank, own->carrier == JOIN_BY_MPI ? "MPI" : "TCP");
        return QUIRE_INVALID;
    }
    if (hello->rank <= own->rank) {
        snprintf(why, n_why, "rank %u must not call rank %u", hello->rank, own->rank);
        return QUIRE_INVALID;
    }
    struct peer_link *link = &links[hello->rank];
    if (*link_of(link, hello->kind) >= 0 && is_gone(*link_of(link, hello->kind)))
        drop(link); /* it was restarted */
    if (*link_of(link, hello->kind) < 0)
        return QUIRE_OK;
    snprintf(why, n_why, "two processes are %s", link->name);
    return QUIRE_INVALID;
}

static void take(const struct rank_listener_own *own, struct rank_listener *listener,
                 const struct rank_listener_arrival *a, struct peer_link *links, struct sockaddr_storage *addresses)
{
    char why[JOIN_TEXT_BYTES] = "";
    int status = judge(own, &a->hello, links, why, sizeof why);
    if (!rank_listener_answer(listener, a, status, why) || status != QUIRE_OK)
        return;
    struct peer_link *link = &links[a->hello.rank];
    *link_of(link, a->hello.kind) = a->fd;
    name_link(link, a->hello.rank, a->hello.host, a->hello.process);
    if (addresses && a->hello.kind == JOIN_CONTROL) {
        struct sockaddr_storage *at = &addresses[a->hello.rank];
        *at = a->address;
        if (at->ss_family == AF_INET6)
            ((struct sockaddr_in6 *)(void *)at)->sin6_port = htons(a->hello.port);
        else
            ((struct sockaddr_in *)(void *)at)->sin_port = htons(a->hello.port);
    }
}

/* "1, 3" */
static void list_missing(const struct rank_listener_own *own, const struct peer_link *links, char *to, size_t n)
{
    size_t at = 0;
    to[0] = 0;
    for (uint32_t r = own->rank + 1; r < own->size && at < n; r++)
        if (!is_whole(own, &links[r]))
            at += (size_t)snprintf(to + at, n - at, "%s%u", at ? ", " : "", r);
}

/* Waits until every rank above this one has called. */
static int await_calls(const struct rank_listener_own *own, struct rank_listener *listener, uint64_t until_ms,
                       struct peer_link *links, struct sockaddr_storage *addresses, struct quire_error *err)
{
    uint64_t said_ms = quire_now_ms();
    char missing[64];
    struct rank_listener_arrival arrival;
    for (;;) {
        list_missing(own, links, missing, sizeof missing);
        const uint64_t now = quire_now_ms();
        if (!missing[0])
            return QUIRE_OK;
        if (now >= until_ms)
            return quire_fail(err, QUIRE_UNAVAILABLE, "ranks: %s of %u did not connect%s%.200s", missing, own->size,
                              listener->refused.text[0] ? "; refused was " : "", listener->refused.text);
        if (now - said_ms >= SAY_EVERY_MS) {
            said_ms = now;
            quire_log(QUIRE_LOG_WARN, "ranks", "waiting at port %u for ranks %s of %u%s%.200s",
                      rank_listener_port(listener), missing, own->size,
                      listener->refused.text[0] ? "; refused was " : "", listener->refused.text);
        }
        if (rank_listener_wait(listener, (int)(until_ms - now < 1000 ? until_ms - now : 1000), &arrival))
            take(own, listener, &arrival, links, addresses);
    }
}

int meeting_host(const struct rank_listener_own *own, struct rank_listener *listener, uint64_t until_ms,
                 struct peer_link *links, struct quire_error *err)
{
    struct sockaddr_storage addresses[COLLECTIVE_MAX_RANKS];
    unsigned char table[JOIN_TABLE_BYTES];
    memset(addresses, 0, sizeof addresses);
    int status = await_calls(own, listener, until_ms, links, addresses, err);
    if (status != QUIRE_OK)
        return status;
    join_table_write(addresses, own->size, table);
    for (uint32_t r = 1; r < own->size; r++)
        if (send(links[r].control, table, sizeof table, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof table)
            return quire_fail(err, QUIRE_UNAVAILABLE, "%s disconnected before all ranks had connected", links[r].name);
    return QUIRE_OK;
}

/* ---- calling ---- */

static int call(const struct rank_listener_own *own, uint32_t to, enum join_kind kind, uint16_t port,
                const struct sockaddr_storage *address, uint64_t until_ms, struct peer_link *link,
                struct quire_error *err)
{
    struct join_welcome welcome;
    int fd = -1;
    int status = call_rank(own, to, kind, port, address, until_ms, &fd, &welcome, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "rank %u", to);
        return status;
    }
    *link_of(link, kind) = fd;
    name_link(link, to, welcome.host, welcome.process);
    return QUIRE_OK;
}

static int call_both(const struct rank_listener_own *own, uint32_t to, uint16_t port,
                     const struct sockaddr_storage *address, uint64_t until_ms, struct peer_link *link,
                     struct quire_error *err)
{
    int status = call(own, to, JOIN_CONTROL, port, address, until_ms, link, err);
    if (status == QUIRE_OK && own->carrier == JOIN_BY_TCP)
        status = call(own, to, JOIN_DATA, 0, address, until_ms, link, err);
    if (status != QUIRE_OK)
        drop(link);
    return status;
}

static void say_waiting(const struct sockaddr_storage *address, const char *why)
{
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "?";
    getnameinfo((const struct sockaddr *)address, sizeof *address, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    quire_log(QUIRE_LOG_WARN, "ranks", "waiting for %s, port %s: %.300s", host, port, why);
}

/* Rank 0 may be started later than this rank. */
static int find_first(const struct rank_listener_own *own, const struct meeting_place *position, uint16_t port,
                      uint64_t until_ms, struct peer_link *link, struct quire_error *err)
{
    uint64_t said_ms = quire_now_ms();
    for (uint32_t i = 0;; i = (i + 1) % position->n) {
        int status = call_both(own, 0, port, &position->addresses[i], until_ms, link, err);
        const uint64_t now = quire_now_ms();
        if (status != QUIRE_UNAVAILABLE || now >= until_ms)
            return status;
        if (now - said_ms >= SAY_EVERY_MS) {
            said_ms = now;
            say_waiting(&position->addresses[i], err->text);
        }
        if (i + 1 == position->n)
            poll(NULL, 0, AGAIN_MS);
    }
}

/* Others call this rank at the address from which it reaches rank 0. It is not known in advance, so it listens on all
 * addresses of that family. */
static int open_own_listener(struct rank_listener *listener, const struct rank_listener_own *own, int family,
                             struct quire_error *err)
{
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(own->has_secret ? INADDR_ANY : INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = own->has_secret ? in6addr_any : in6addr_loopback};
    int status = family == AF_INET6
                     ? rank_listener_open(listener, own, (const struct sockaddr *)&six, sizeof six, err)
                     : rank_listener_open(listener, own, (const struct sockaddr *)&four, sizeof four, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "listening for other ranks");
    return status == QUIRE_OK ? status : QUIRE_IO;
}

int meeting_join(const struct rank_listener_own *own, const struct meeting_place *position, uint64_t until_ms,
                 struct peer_link *links, struct quire_error *err)
{
    struct sockaddr_storage addresses[COLLECTIVE_MAX_RANKS];
    unsigned char table[JOIN_TABLE_BYTES];
    struct rank_listener listener;
    int status = open_own_listener(&listener, own, position->addresses[0].ss_family, err);
    if (status != QUIRE_OK)
        return status;
    status = find_first(own, position, rank_listener_port(&listener), until_ms, &links[0], err);
    if (status == QUIRE_OK) {
        status = call_read(links[0].control, table, sizeof table, until_ms, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "waiting for all ranks to connect to %s", links[0].name);
    }
    if (status == QUIRE_OK)
        status = join_table_read(table, own->size, addresses, err);
    for (uint32_t r = 1; r < own->rank && status == QUIRE_OK; r++)
        status = call_both(own, r, 0, &addresses[r], until_ms, &links[r], err);
    if (status == QUIRE_OK)
        status = await_calls(own, &listener, until_ms, links, NULL, err);
    rank_listener_close(&listener);
    return status;
}
