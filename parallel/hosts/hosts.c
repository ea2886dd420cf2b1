#include "parallel/hosts/hosts.h"

#include "base/clock.h"
#include "base/log.h"
#include "parallel/hosts/hosts_transport.h"
#include "parallel/hosts/meeting.h"
#include "parallel/hosts/carriers/mpi_carrier.h"
#include "parallel/hosts/carriers/tcp_carrier.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECRET "QUIRE_GROUP_SECRET"
#define MIN_SECRET 16
#define MAX_SECRET 4096
#define SAY_EVERY_MS 10000u /* interval of log lines while waiting */

struct joining {
    const struct hosts_options *options;
    struct rank_listener_own own;
    struct key256 key;
    struct rank_listener listener; /* rank 0's */
    bool has_listener;
    struct meeting_place position; /* of the other ranks */
    void *mpi; /* the carrier's state; NULL: no MPI */
    char library[256]; /* name of the MPI library */
    uint64_t until_ms;
};

/* ---- the secret ---- */

static int read_secret(struct joining *j, struct quire_error *err)
{
    const char *value = getenv(SECRET);
    size_t n = value ? strlen(value) : 0;
    while (n > 0 && strchr(" \t\r\n", value[n - 1]))
        n--;
    if (!value)
        return QUIRE_OK;
    if (n < MIN_SECRET || n > MAX_SECRET)
        return quire_fail(err, QUIRE_INVALID,
                          SECRET ": must have %d to %d bytes, has %zu; openssl rand -hex 32 makes one", MIN_SECRET,
                          MAX_SECRET, n);
    j->key = quire_keyed_hash(NULL, value, n);
    j->own.has_secret = true;
    return QUIRE_OK;
}

/* ---- address of rank 0 ---- */

static int look_up(const struct position *position, struct meeting_place *out, struct quire_error *err)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", position->port);
    int why = getaddrinfo(position->address, port, &want, &found);
    if (why != 0)
        return quire_fail(err, QUIRE_UNAVAILABLE, "rank 0's address %s: %s", position->address, gai_strerror(why));
    out->n = 0;
    for (struct addrinfo *a = found; a && out->n < MEETING_ADDRESSES; a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
            memcpy(&out->addresses[out->n++], a->ai_addr, a->ai_addrlen);
    freeaddrinfo(found);
    return out->n > 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_UNAVAILABLE, "rank 0's address %s: the name does not exist", position->address);
}

/* A name that a cluster creates may not exist yet. */
static int look_up_patiently(const struct joining *j, struct meeting_place *out, struct quire_error *err)
{
    uint64_t said_ms = quire_now_ms() - SAY_EVERY_MS;
    int status = look_up(j->options->position, out, err);
    while (status != QUIRE_OK && quire_now_ms() < j->until_ms) {
        if (quire_now_ms() - said_ms >= SAY_EVERY_MS) {
            said_ms = quire_now_ms();
            quire_log(QUIRE_LOG_WARN, "ranks", "looking up the name again until it is known: %.300s", err->text);
        }
        usleep(200000);
        status = look_up(j->options->position, out, err);
    }
    return status;
}

static int open_at(struct joining *j, const struct sockaddr_storage *address, struct quire_error *err)
{
    const socklen_t n = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int status = rank_listener_open(&j->listener, &j->own, (const struct sockaddr *)address, n, err);
    j->has_listener = status == QUIRE_OK;
    return status;
}

/* At rank 0's address. If that is not one of this host's (a service's, or behind NAT), at all of this host's addresses.
 */
static int open_listener(struct joining *j, struct quire_error *err)
{
    const struct position *position = j->options->position;
    struct meeting_place at;
    int status = look_up_patiently(j, &at, err);
    if (status != QUIRE_OK)
        return status;
    if (!j->own.has_secret && !rank_listener_is_loopback(&at.addresses[0]))
        return quire_fail(err, QUIRE_INVALID,
                          "rank 0's address %s is not a loopback address, which needs a secret: set " SECRET
                          " to the same value for every rank",
                          position->address);
    status = open_at(j, &at.addresses[0], err);
    if (status == QUIRE_NOT_FOUND && j->own.has_secret) {
        const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(position->port)};
        memcpy(&at.addresses[0], &any, sizeof any);
        status = open_at(j, &at.addresses[0], err);
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "listening at %s, port %u", position->address, position->port);
    return status == QUIRE_OK ? status : QUIRE_IO;
}

/* ---- MPI ---- */

/* Rank 0's address or, if it listens on all, those of its network that others can reach. */
static uint32_t list_addresses(bool is_local, uint16_t port, struct sockaddr_storage *out, uint32_t max)
{
    struct ifaddrs *all = NULL;
    uint32_t n = 0;
    const struct sockaddr_in loopback = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (is_local || getifaddrs(&all) != 0) {
        memcpy(&out[n++], &loopback, sizeof loopback);
        return n;
    }
    for (struct ifaddrs *a = all; a && n < max; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
            (a->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&out[n], a->ifa_addr, sizeof(struct sockaddr_in));
        ((struct sockaddr_in *)(void *)&out[n++])->sin_port = htons(port);
    }
    freeifaddrs(all);
    return n;
}

/* What rank 0 sends to the others over MPI: a secret for this group, and its addresses. */
struct mpi_meeting {
    unsigned char secret[32];
    uint32_t n;
    unsigned char table[JOIN_TABLE_BYTES]; /* n addresses, from the second entry on */
};

static int open_mpi_listener(struct joining *j, struct mpi_meeting *said, struct quire_error *err)
{
    struct sockaddr_storage addresses[1 + MEETING_ADDRESSES], any = {0};
    const bool is_local = j->options->position->n_local == j->own.size;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY)};
    memcpy(&any, &at, sizeof at);
    memset(addresses, 0, sizeof addresses);
    int status = open_at(j, &any, err);
    if (status != QUIRE_OK)
        return status;
    quire_random(said->secret, sizeof said->secret);
    said->n = list_addresses(is_local, rank_listener_port(&j->listener), addresses + 1, COLLECTIVE_MAX_RANKS - 1);
    join_table_write(addresses, 1 + said->n, said->table);
    return QUIRE_OK;
}

static int share_mpi_meeting(struct joining *j, struct quire_error *err)
{
    struct mpi_meeting said = {.n = 0};
    struct sockaddr_storage addresses[1 + COLLECTIVE_MAX_RANKS];
    int own = j->own.rank == 0 ? open_mpi_listener(j, &said, err) : QUIRE_OK;
    int status = mpi_carrier_share(j->mpi, &said, sizeof said, err);
    if (own != QUIRE_OK || status != QUIRE_OK)
        return own != QUIRE_OK ? own : status;
    memcpy(j->key.bytes, said.secret, sizeof said.secret);
    j->own.has_secret = true;
    explicit_bzero(said.secret, sizeof said.secret);
    if (said.n == 0 || said.n >= COLLECTIVE_MAX_RANKS)
        return quire_fail(err, QUIRE_UNAVAILABLE, "rank 0 has no address that other ranks can reach");
    status = join_table_read(said.table, 1 + said.n, addresses, err);
    j->position.n = said.n;
    memcpy(j->position.addresses, addresses + 1, said.n * sizeof addresses[0]);
    return status;
}

/* MPI if it was requested, or if mpirun started this process and MPI is available; otherwise TCP, with the reason in
 * the log. */
static int choose_carrier(struct joining *j, struct quire_error *err)
{
    const struct position *position = j->options->position;
    uint32_t rank = 0, size = 0;
    struct quire_error why;
    j->own.carrier = JOIN_BY_TCP;
    if (j->options->transport == TRANSPORT_TCP || (j->options->transport != TRANSPORT_MPI && !position->is_mpi))
        return QUIRE_OK;
    int status = mpi_carrier_open(position->is_mpich, &rank, &size, j->library, &j->mpi, &why);
    if (status == QUIRE_OK && (rank != position->rank || size != position->size))
        return quire_fail(err, QUIRE_INVALID, "%s makes this rank %u of %u, but %s makes it rank %u of %u", j->library,
                          rank, size, position->launcher, position->rank, position->size);
    if (status == QUIRE_OK) {
        j->own.carrier = JOIN_BY_MPI;
        return QUIRE_OK;
    }
    if (j->options->transport == TRANSPORT_MPI)
        return quire_fail(err, status, "--rank-transport mpi: %s", why.text);
    if (!position->address[0])
        return quire_fail(err, status,
                          "%s does not set the address of rank 0, and MPI is not available (%.200s): give "
                          "--master-addr",
                          position->launcher, why.text);
    quire_log(QUIRE_LOG_WARN, "ranks", "using TCP instead of MPI: %s", why.text);
    return QUIRE_OK;
}

/* ---- all ---- */

static int meet(struct joining *j, struct peer_link *links, struct quire_error *err)
{
    int status;
    if (j->mpi)
        status = share_mpi_meeting(j, err);
    else
        status = j->own.rank == 0 ? open_listener(j, err) : look_up_patiently(j, &j->position, err);
    if (status != QUIRE_OK)
        return status;
    return j->own.rank == 0 ? meeting_host(&j->own, &j->listener, j->until_ms, links, err)
                            : meeting_join(&j->own, &j->position, j->until_ms, links, err);
}

/* Creates the connections between ranks that have met. Takes links. */
static int connect_ranks(struct joining *j, const struct peer_link *links, struct member *m, struct quire_error *err)
{
    const struct carrier *carrier = j->mpi ? &mpi_carrier : &tcp_carrier;
    void *state = j->mpi;
    struct peers *peers;
    int status = j->mpi ? QUIRE_OK : tcp_carrier_open(j->own.size, links, hosts_transport_inbox(m), &state, err);
    if (j->mpi)
        mpi_carrier_set_inbox(state, hosts_transport_inbox(m));
    /* MPI never starts more processes than the group has. */
    struct rank_listener *kept = j->has_listener && !j->mpi ? rank_listener_keep(&j->listener) : NULL;
    int peers_status = peers_open(j->own.rank, j->own.size, links, kept, j->options->over, &peers,
                                  status == QUIRE_OK ? err : NULL);
    if (status == QUIRE_OK && peers_status != QUIRE_OK)
        carrier->close(state, false);
    if (status != QUIRE_OK && peers_status == QUIRE_OK)
        peers_close(peers);
    if (status != QUIRE_OK || peers_status != QUIRE_OK)
        return status != QUIRE_OK ? status : peers_status;
    hosts_transport_set(m, peers, carrier, state);
    return QUIRE_OK;
}

static int open_transport(void *context, uint64_t *waited_ns, uint32_t *size, void **state, struct quire_error *err)
{
    struct joining *j = context;
    struct peer_link links[COLLECTIVE_MAX_RANKS];
    const uint32_t timeout_ms = j->options->timeout_ms ? j->options->timeout_ms : COLLECTIVE_TIMEOUT_MS;
    for (uint32_t r = 0; r < COLLECTIVE_MAX_RANKS; r++) {
        links[r] = (struct peer_link){.control = -1, .data = -1};
        snprintf(links[r].name, sizeof links[r].name, "rank %u", r);
    }
    struct member *m = hosts_transport_new(j->own.rank, j->own.size, timeout_ms, waited_ns, err);
    if (!m)
        return QUIRE_NO_MEMORY;
    int status = meet(j, links, err);
    if (status == QUIRE_OK)
        status = connect_ranks(j, links, m, err);
    else
        for (uint32_t r = 0; r < COLLECTIVE_MAX_RANKS; r++) {
            if (links[r].control >= 0)
                close(links[r].control);
            if (links[r].data >= 0)
                close(links[r].data);
        }
    if (status != QUIRE_OK) {
        hosts_transport_free(m);
        return status;
    }
    *size = j->own.size;
    *state = m;
    return QUIRE_OK;
}

size_t hosts_message_bytes(const struct position *position, enum rank_transport transport)
{
    const size_t n_peers = position->size - 1;
    const bool is_mpi = transport == TRANSPORT_MPI || (transport == TRANSPORT_AUTO && position->is_mpi);
    return n_peers * INBOX_PLACES * sizeof(struct inbox_message) + position->size * sizeof(struct inbox_message) +
           (is_mpi ? mpi_carrier_bytes() : 0);
}

int hosts_join(const struct hosts_options *options, struct collective **out, struct quire_error *err)
{
    const struct position *position = options->position;
    struct joining j = {.options = options,
                        .own = {.rank = position->rank, .size = position->size},
                        .until_ms = quire_now_ms() + (options->join_ms ? options->join_ms : HOSTS_JOIN_MS)};
    if (position->size < 1 || position->size > COLLECTIVE_MAX_RANKS || position->rank >= position->size)
        return quire_fail(err, QUIRE_INVALID, "rank %u of a group of %u: a group has at most %d ranks", position->rank,
                          position->size, COLLECTIVE_MAX_RANKS);
    j.own.key = &j.key;
    char name[HOST_NAME_MAX + 1] = "";
    if (gethostname(name, sizeof name) == 0)
        snprintf(j.own.host, sizeof j.own.host, "%.*s", JOIN_HOST_BYTES - 1, name);
    int status = read_secret(&j, err);
    if (status == QUIRE_OK)
        status = choose_carrier(&j, err);
    if (status == QUIRE_OK)
        status = transport_collective(&hosts_transport, position->rank, open_transport, &j, out, err);
    if (j.has_listener)
        rank_listener_close(&j.listener);
    explicit_bzero(&j.key, sizeof j.key);
    if (status == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "ranks", "rank %u of %u, started by %s; data transport: %s", position->rank,
                  position->size, position->launcher, j.mpi ? j.library : "TCP");
    return status;
}
