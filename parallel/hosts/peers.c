#include "parallel/hosts/peers.h"

#include "base/clock.h"
#include "base/process.h"
#include "parallel/hosts/message.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEAT_MS 100

/* At most this much of the time between two looks counts as silence: a group that was stopped as a whole and continues
 * has lost no rank. */
#define MOST_MS 200

/* If one rank must be blamed, this much time without a sign marks a peer as stopped: two and a half heartbeats. */
#define STILL_NS UINT64_C(250000000)

/* The last sign must reach the others before the connection ends. */
#define FAREWELL_MS 200

/* Turns per heartbeat of a listener that expects no rank any more; a caller takes three. */
#define RANK_LISTENER_TURNS 4

struct peer {
    int fd; /* -1: over */
    char name[PEER_NAME_BYTES];
    atomic_bool has_left;
    _Atomic uint64_t work_ns;
    _Atomic uint64_t silent_ns;
    _Atomic uint32_t waits_for;
    unsigned char in[2 * SIGN_MAX_BYTES];
    size_t n_in;
};

struct peers {
    uint32_t rank, size;
    _Atomic uint32_t waits_for; /* this rank */
    _Atomic int32_t computes; /* its computing thread */
    atomic_bool loads;
    int32_t own_thread; /* of the listening thread, as are the three below */
    int32_t seen; /* the thread whose work was seen last; 0: the process */
    uint64_t seen_ns, work_ns; /* that, and everything that counts */
    struct peer peers[COLLECTIVE_MAX_RANKS];
    struct rank_listener *listener; /* NULL: none */
    void (*over)(void); /* NULL: no callback */
    int wake_fd, stop_fd;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* protects sending and closing, and the three below */
    atomic_bool is_over; /* stored after the two below, which do not change afterwards */
    enum quire_status status;
    char text[QUIRE_ERROR_BYTES];
};

/* ---- saying ---- */

/* Call with the lock. Never waits for a peer's buffer: a full one belongs to a peer that does not read, and its silence
 * reveals that. */
static void say(struct peers *p, const struct sign *sign)
{
    unsigned char bytes[SIGN_MAX_BYTES];
    const size_t n = sign_write(sign, bytes);
    for (uint32_t r = 0; r < p->size; r++) {
        struct peer *peer = &p->peers[r];
        if (peer->fd < 0)
            continue;
        ssize_t sent = send(peer->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0 && (size_t)sent < n) /* the rest would not be a sign */
            shutdown(peer->fd, SHUT_RDWR);
    }
}

/* The group has ended, as found by rank `by`. All peers get the reason, even if another one sent it to this rank. A
 * rank that leaves next has therefore sent the reason before and is never taken for the cause. */
static void end(struct peers *p, uint32_t by, enum quire_status status, const char *why)
{
    struct sign sign = {.kind = SIGN_ENDS, .status = status, .rank = by};
    pthread_mutex_lock(&p->lock);
    const bool is_first = !atomic_load(&p->is_over);
    if (is_first) {
        message_print(sign.text, sizeof sign.text, why, strlen(why));
        if (by == p->rank)
            snprintf(p->text, sizeof p->text, "%s", sign.text);
        else
            snprintf(p->text, sizeof p->text, "rank %u ended the group: %s", by, sign.text);
        p->status = status;
        atomic_store(&p->is_over, true);
        eventfd_write(p->wake_fd, 1);
        say(p, &sign);
    }
    pthread_mutex_unlock(&p->lock);
    if (is_first && p->over)
        p->over();
}

void peers_end(struct peers *p, enum quire_status status, const char *why)
{
    end(p, p->rank, status == QUIRE_INVALID ? QUIRE_INVALID : QUIRE_UNAVAILABLE, why);
}

int peers_check(struct peers *p, struct quire_error *err)
{
    return atomic_load(&p->is_over) ? quire_fail(err, p->status, "%s", p->text) : QUIRE_OK;
}

/* ---- listening ---- */

static void close_peer(struct peers *p, uint32_t r)
{
    pthread_mutex_lock(&p->lock);
    close(p->peers[r].fd);
    p->peers[r].fd = -1;
    pthread_mutex_unlock(&p->lock);
}

static void lose(struct peers *p, uint32_t r, const char *what)
{
    struct quire_error found;
    quire_fail(&found, QUIRE_UNAVAILABLE, "%s %s", p->peers[r].name, what);
    peers_end(p, QUIRE_UNAVAILABLE, found.text);
}

static void hear(struct peers *p, uint32_t r, const struct sign *sign)
{
    struct peer *peer = &p->peers[r];
    if (sign->kind == SIGN_ALIVE) {
        atomic_store(&peer->work_ns, sign->work_ns);
        atomic_store(&peer->waits_for, sign->rank);
    }
    if (sign->kind == SIGN_LEAVES) {
        atomic_store(&peer->has_left, true);
        eventfd_write(p->wake_fd, 1);
    }
    if (sign->kind == SIGN_ENDS)
        end(p, sign->rank == SIGN_NOBODY ? r : sign->rank, sign->status, sign->text);
}

/* Reads what a peer has sent. Returns false if nothing more will come. */
static bool listen_to(struct peers *p, uint32_t r)
{
    struct peer *peer = &p->peers[r];
    struct quire_error wrong;
    struct sign sign;
    ssize_t got = recv(peer->fd, peer->in + peer->n_in, sizeof peer->in - peer->n_in, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    const int yes = 1;
    setsockopt(peer->fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes); /* a leaving peer waits for it */
    peer->n_in += (size_t)got;
    for (size_t used = 1; used > 0;) {
        if (sign_read(peer->in, peer->n_in, &sign, &used, &wrong) != QUIRE_OK) {
            struct quire_error found;
            quire_fail(&found, QUIRE_UNAVAILABLE, "%s sent an invalid sign: %.200s", peer->name, wrong.text);
            peers_end(p, QUIRE_UNAVAILABLE, found.text);
            return false;
        }
        if (used > 0)
            hear(p, r, &sign);
        peer->n_in -= used;
        memmove(peer->in, peer->in + used, peer->n_in);
    }
    atomic_store(&peer->silent_ns, 0);
    return got > 0;
}

static void look_around(struct peers *p, uint64_t passed_ns)
{
    const uint64_t most = (uint64_t)MOST_MS * 1000000u;
    for (uint32_t r = 0; r < p->size; r++) {
        struct peer *peer = &p->peers[r];
        if (peer->fd < 0 || atomic_load(&peer->has_left))
            continue;
        const uint64_t silent_ns = atomic_load(&peer->silent_ns) + (passed_ns < most ? passed_ns : most);
        atomic_store(&peer->silent_ns, silent_ns);
        if (silent_ns > (uint64_t)PEERS_SILENT_MS * 1000000u) {
            char what[120];
            snprintf(what, sizeof what, "sent no data for %.1f s: it is stopped, or its host or network is down",
                     (double)silent_ns * 1e-9);
            lose(p, r, what);
            close_peer(p, r);
        }
    }
}

/* Adds the work since the last heartbeat, without this thread's own, which always has some. */
static uint64_t count_work(struct peers *p)
{
    struct quire_process_look look, own = {.work_ns = 0};
    const int32_t whose = atomic_load(&p->loads) ? 0 : atomic_load(&p->computes);
    quire_process_look((int32_t)getpid(), whose, &look);
    if (whose == 0)
        quire_process_look((int32_t)getpid(), p->own_thread, &own);
    const uint64_t now_ns = look.work_ns > own.work_ns ? look.work_ns - own.work_ns : 0;
    if (whose == p->seen && now_ns > p->seen_ns)
        p->work_ns += now_ns - p->seen_ns;
    if (look.is_at_disk)
        p->work_ns += BEAT_MS * UINT64_C(1000000);
    p->seen = whose;
    p->seen_ns = now_ns;
    return p->work_ns;
}

static void beat(struct peers *p)
{
    const struct sign sign = {.kind = SIGN_ALIVE, .work_ns = count_work(p), .rank = atomic_load(&p->waits_for)};
    pthread_mutex_lock(&p->lock);
    say(p, &sign);
    pthread_mutex_unlock(&p->lock);
}

/* A caller with the number of a living rank is one too many. If that rank may just have died, or the group has ended,
 * the caller belongs to the next group: it retries and finds that listener. */
static void turn_away(struct peers *p, const struct rank_listener_arrival *arrival)
{
    const uint32_t r = arrival->hello.rank;
    char why[JOIN_TEXT_BYTES];
    const bool is_rank = r < p->size && r != p->rank;
    if (atomic_load(&p->is_over) ||
        (is_rank && (p->peers[r].fd < 0 || atomic_load(&p->peers[r].silent_ns) > STILL_NS))) {
        rank_listener_hang_up(p->listener, arrival);
        return;
    }
    if (is_rank)
        snprintf(why, sizeof why, "two processes are %s", p->peers[r].name);
    else
        snprintf(why, sizeof why, "rank %u cannot join: all %u ranks are connected", r, p->size);
    rank_listener_answer(p->listener, arrival, QUIRE_INVALID, why);
}

static void mind_listener(struct peers *p)
{
    struct rank_listener_arrival arrival;
    for (int i = 0; p->listener && i < RANK_LISTENER_TURNS; i++)
        if (rank_listener_wait(p->listener, 0, &arrival))
            turn_away(p, &arrival);
}

static void *run(void *peers)
{
    struct peers *p = peers;
    struct pollfd fds[COLLECTIVE_MAX_RANKS + 1];
    uint64_t looked = quire_now_ns(), beaten = 0;
    p->own_thread = (int32_t)gettid();
    fds[p->size] = (struct pollfd){.fd = p->stop_fd, .events = POLLIN};
    for (;;) {
        uint64_t now = quire_now_ns();
        if (now - beaten >= BEAT_MS * UINT64_C(1000000)) {
            beat(p);
            beaten = now;
        }
        for (uint32_t r = 0; r < p->size; r++)
            fds[r] = (struct pollfd){.fd = p->peers[r].fd, .events = POLLIN};
        if (poll(fds, p->size + 1, (int)(BEAT_MS - (now - beaten) / 1000000)) > 0 && fds[p->size].revents)
            return NULL;
        for (uint32_t r = 0; r < p->size; r++)
            if (fds[r].fd >= 0 && fds[r].revents && !listen_to(p, r)) {
                if (!atomic_load(&p->peers[r].has_left))
                    lose(p, r, "has died: its connection closed");
                close_peer(p, r);
            }
        mind_listener(p);
        now = quire_now_ns();
        look_around(p, now - looked);
        looked = now;
    }
}

/* ---- public functions ---- */

static int start(struct peers *p, struct quire_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the caller's threads */
    int why = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->has_thread = why == 0;
    return why == 0 ? QUIRE_OK : quire_fail(err, QUIRE_IO, "starting a thread: %s", strerror(why));
}

int peers_open(uint32_t rank, uint32_t size, const struct peer_link *links, struct rank_listener *listener,
               void (*over)(void), struct peers **out, struct quire_error *err)
{
    struct peers *p = calloc(1, sizeof *p);
    if (!p) {
        rank_listener_give_up(listener);
        for (uint32_t r = 0; r < size; r++)
            if (links[r].control >= 0)
                close(links[r].control);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    p->rank = rank;
    p->size = size;
    p->listener = listener;
    p->over = over;
    atomic_store(&p->waits_for, PEERS_NOBODY);
    pthread_mutex_init(&p->lock, NULL);
    for (uint32_t r = 0; r < size; r++) {
        p->peers[r].fd = links[r].control;
        atomic_store(&p->peers[r].waits_for, PEERS_NOBODY);
        snprintf(p->peers[r].name, sizeof p->peers[r].name, "%s", links[r].name);
    }
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->stop_fd = eventfd(0, EFD_CLOEXEC);
    int status = p->wake_fd >= 0 && p->stop_fd >= 0 ? start(p, err)
                                                    : quire_fail(err, QUIRE_IO, "eventfd: %s", strerror(errno));
    if (status != QUIRE_OK) {
        peers_close(p);
        return status;
    }
    *out = p;
    return QUIRE_OK;
}

/* Waits until the peer's host has the data, or until the time limit. Reads incoming data, because the connection would
 * otherwise be reset. */
static void await_delivery(int fd, uint64_t until_ms)
{
    unsigned char rest[4096];
    int n_left = 0;
    while (ioctl(fd, SIOCOUTQ, &n_left) == 0 && n_left > 0 && quire_now_ms() < until_ms)
        poll(NULL, 0, 1);
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
}

void peers_close(struct peers *p)
{
    const struct sign leaves = {.kind = SIGN_LEAVES, .rank = SIGN_NOBODY};
    if (!p)
        return;
    if (p->has_thread) {
        eventfd_write(p->stop_fd, 1);
        pthread_join(p->thread, NULL);
        say(p, &leaves);
    }
    rank_listener_give_up(p->listener);
    const uint64_t until_ms = quire_now_ms() + FAREWELL_MS;
    for (uint32_t r = 0; r < p->size; r++)
        if (p->peers[r].fd >= 0) {
            await_delivery(p->peers[r].fd, until_ms);
            close(p->peers[r].fd);
        }
    if (p->wake_fd >= 0)
        close(p->wake_fd);
    if (p->stop_fd >= 0)
        close(p->stop_fd);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *peers_name(const struct peers *p, uint32_t r)
{
    return p->peers[r].name;
}

bool peers_has_left(struct peers *p, uint32_t r)
{
    return atomic_load(&p->peers[r].has_left);
}

uint64_t peers_work_ns(struct peers *p, uint32_t r)
{
    return atomic_load(&p->peers[r].work_ns);
}

void peers_compute(struct peers *p, int32_t thread)
{
    atomic_store_explicit(&p->computes, thread, memory_order_relaxed);
}

void peers_load(struct peers *p, bool loads)
{
    atomic_store(&p->loads, loads);
}

void peers_wait_for(struct peers *p, uint32_t r)
{
    atomic_store(&p->waits_for, r);
}

uint32_t peers_blame(struct peers *p, uint32_t r)
{
    for (uint32_t i = 0; i < p->size; i++) {
        const uint32_t next = atomic_load(&p->peers[r].waits_for);
        if (next >= p->size || next == p->rank || atomic_load(&p->peers[r].silent_ns) > STILL_NS)
            break;
        r = next;
    }
    return r;
}

int peers_wake_fd(const struct peers *p)
{
    return p->wake_fd;
}
