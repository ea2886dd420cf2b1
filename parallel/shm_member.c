#include "parallel/shm_member.h"

#include "base/clock.h"
#include "parallel/progress.h"
#include "parallel/collective.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Calls in quick succession end while a rank polls: a sleep costs the waker 5 us and the sleeper 50. The first polls
 * keep the CPU if the group has one per rank. After that, the rank yields between polls, because the rank that it waits
 * for, or a neighbour, may need this CPU. On 2 busy CPUs, a barrier of 2 ranks took 10 us with 4 us of keeping the CPU
 * and 50 to 100 us without yielding; of 4 ranks, 5 us with yielding at once and 8 us with sleeping at once. */
#define KEEP_NS 500
#define SPIN_NS 50000
#define SPINS_PER_CLOCK_READ 8

/* A sleeper is woken by the rank that it waits for. It wakes up in between to check whether that rank lives, and counts
 * no more than this of each sleep against the time-out: a group that was stopped as a whole and continues (a terminal's
 * ^Z) has not hung. */
#define LOOK_UP_MS 100

/* If the time-out is longer, ranks are loading. A rank that is stopped (SIGSTOP) for this long is not. */
#define STOPPED_MS COLLECTIVE_TIMEOUT_MS

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* CPUs for this group's ranks. A process bound to a single CPU assumes that its peers are bound to others. */
static uint32_t count_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (uint32_t)n : online > 0 ? (uint32_t)online : 1;
}

/* Maps group number `group` of the memory, with n_ranks ranks, and claims the rank's slot. */
static int take_place(struct shm_member *m, int fd, uint32_t group, uint32_t n_ranks, struct quire_error *err)
{
    int status = shm_map(fd, group, n_ranks, &m->shm, err);
    if (status != QUIRE_OK)
        return status;
    int32_t nobody = 0;
    if (m->rank >= m->shm.n_ranks)
        status = quire_fail(err, QUIRE_INVALID, "rank %u of a group of %u", m->rank, m->shm.n_ranks);
    else if (!atomic_compare_exchange_strong(&m->shm.ranks[m->rank]->process, &nobody, (int32_t)getpid()))
        status = quire_fail(err, QUIRE_INVALID, "rank %u of the group is in use by process %d", m->names[m->rank],
                            (int)nobody);
    if (status != QUIRE_OK) {
        shm_unmap(&m->shm);
        return status;
    }
    atomic_store(&m->shm.ranks[m->rank]->state, SHM_JOINED);
    m->keep_ns = count_cpus() >= m->shm.n_ranks ? KEEP_NS : 0;
    return QUIRE_OK;
}

static void clear(struct shm_member *m)
{
    for (uint32_t r = 0; r < COLLECTIVE_MAX_RANKS; r++) {
        m->pidfds[r] = -1;
        m->names[r] = r;
    }
    atomic_flag_clear(&m->why_is_said);
}

int shm_member_open(struct shm_member *m, int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns,
                    struct quire_error *err)
{
    *m = (struct shm_member){.rank = rank, .timeout_ms = timeout_ms, .waited_ns = waited_ns};
    clear(m);
    int status = take_place(m, fd, 0, 0, err);
    if (status != QUIRE_OK)
        return status;
    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (m->fd >= 0)
        return QUIRE_OK;
    status = quire_fail(err, QUIRE_IO, "locking the group's memory: %s", strerror(errno));
    shm_member_close(m);
    return status;
}

int shm_member_open_part(struct shm_member *m, struct shm_member *whole, uint32_t part, const uint32_t *ranks,
                         uint32_t n_ranks, struct quire_error *err)
{
    *m = (struct shm_member){.fd = -1, .whole = whole, .timeout_ms = whole->timeout_ms, .waited_ns = whole->waited_ns};
    clear(m);
    for (uint32_t r = 0; r < n_ranks; r++) {
        m->names[r] = ranks[r];
        if (ranks[r] == whole->rank)
            m->rank = r;
    }
    return take_place(m, whole->fd, 1 + part, n_ranks, err);
}

/* ---- waking ---- */

static void ring(struct shm_rank *peer)
{
    atomic_fetch_add(&peer->bell, 1);
    syscall(SYS_futex, &peer->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void ring_sleepers(struct shm_member *m)
{
    for (uint32_t r = 0; r < m->shm.n_ranks; r++)
        if (r != m->rank && atomic_load(&m->shm.ranks[r]->asleep))
            ring(m->shm.ranks[r]);
}

/* The rank in the memory of the whole group, by its number there. */
static struct shm_rank *rank_of_all(const struct shm_member *m, uint32_t rank)
{
    return (m->whole ? m->whole : m)->shm.ranks[rank];
}

void shm_member_publish(struct shm_member *m)
{
    struct shm_rank *self = m->shm.ranks[m->rank];
    atomic_store_explicit(&rank_of_all(m, m->names[m->rank])->thread, (int32_t)gettid(), memory_order_relaxed);
    m->round++;
    m->call.published_ns = quire_now_ns();
    m->calls[m->round & 1] = m->call;
    self->calls[m->round & 1] = m->call;
    atomic_store(&self->round, m->round);
    ring_sleepers(m);
}

void shm_member_close(struct shm_member *m)
{
    atomic_store(&m->shm.ranks[m->rank]->state, SHM_LEFT);
    ring_sleepers(m);
    for (uint32_t r = 0; r < m->shm.n_ranks; r++)
        if (m->pidfds[r] >= 0)
            close(m->pidfds[r]);
    shm_unmap(&m->shm);
    if (m->fd >= 0)
        close(m->fd);
}

/* ---- the end of a group ---- */

void shm_member_end(struct shm_member *m, enum quire_status status, const char *why)
{
    struct shm_rank *self = m->shm.ranks[m->rank];
    uint32_t nobody = 0;
    if (atomic_load(&m->shm.head->aborted_by) || atomic_flag_test_and_set(&m->why_is_said))
        return;
    self->why_status = status;
    snprintf(self->why, sizeof self->why, "%s", why);
    atomic_compare_exchange_strong(&m->shm.head->aborted_by, &nobody, m->rank + 1);
    for (uint32_t r = 0; r < m->shm.n_ranks; r++)
        ring(m->shm.ranks[r]);
    if (m->whole)
        shm_member_end(m->whole, status, why);
}

int shm_member_check(const struct shm_member *m, struct quire_error *err)
{
    uint32_t by = atomic_load(&m->shm.head->aborted_by);
    if (by == 0)
        return m->whole ? shm_member_check(m->whole, err) : QUIRE_OK;
    if (by > m->shm.n_ranks)
        return quire_fail(err, QUIRE_INTERNAL, "the group's memory is corrupt: rank %u ended it, of %u ranks", by - 1,
                          m->shm.n_ranks);
    char why[SHM_WHY_BYTES];
    memcpy(why, m->shm.ranks[by - 1]->why, sizeof why);
    why[sizeof why - 1] = 0;
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    enum quire_status status = m->shm.ranks[by - 1]->why_status == QUIRE_INVALID ? QUIRE_INVALID : QUIRE_UNAVAILABLE;
    if (by - 1 == m->rank)
        return quire_fail(err, status, "%s", why);
    return quire_fail(err, status, "rank %u ended the group: %s", m->names[by - 1], why);
}

/* Ends the group with the error that this rank found and returns it. If another rank has already ended the group, that
 * rank's reason is the cause, because a rank that gives up or detects a death leaves and dies next. */
static int end_with(struct shm_member *m, struct quire_error *found, enum quire_status status, struct quire_error *err)
{
    shm_member_end(m, status, found->text);
    const uint32_t by = atomic_load(&m->shm.head->aborted_by);
    if (by != 0 && by - 1 != m->rank)
        return shm_member_check(m, err);
    return quire_fail(err, status, "%s", found->text);
}

/* "call 12 (all-reduce of 4096 bytes)" */
static void describe(const struct shm_member *m, const struct shm_call *call, char *to, size_t n)
{
    static const char *const names[] = {
        [SHM_NONE] = "nothing",  [SHM_ALL_REDUCE] = "all-reduce", [SHM_ALL_GATHER] = "all-gather",
        [SHM_GATHER] = "gather", [SHM_BROADCAST] = "broadcast",   [SHM_BARRIER] = "barrier"};
    const char *name = call->operation <= SHM_BARRIER ? names[call->operation] : "an unknown operation";
    if (call->operation == SHM_BARRIER)
        snprintf(to, n, "call %u (barrier)", call->number);
    else if (call->operation == SHM_BROADCAST)
        snprintf(to, n, "call %u (broadcast of %llu bytes by rank %u)", call->number, (unsigned long long)call->n_bytes,
                 call->root < m->shm.n_ranks ? m->names[call->root] : call->root);
    else
        snprintf(to, n, "call %u (%s of %llu bytes)", call->number, name, (unsigned long long)call->n_bytes);
}

/* ---- waiting ---- */

static bool has_come(const struct shm_member *m, uint32_t r)
{
    return (int32_t)(atomic_load_explicit(&m->shm.ranks[r]->round, memory_order_acquire) - m->round) >= 0;
}

/* Returns whether the rank's process has ended. A zombie counts as ended. */
static bool is_dead(struct shm_member *m, uint32_t r)
{
    int32_t process = atomic_load(&m->shm.ranks[r]->process);
    if (process <= 0)
        return false;
    if (m->pidfds[r] < 0)
        m->pidfds[r] = (int)syscall(SYS_pidfd_open, (pid_t)process, 0);
    if (m->pidfds[r] < 0)
        return errno == ESRCH;
    struct pollfd p = {.fd = m->pidfds[r], .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Ends the group if a rank died, or if the rank that is waited for left. */
static int check_peers(struct shm_member *m, uint32_t waited_for, struct quire_error *err)
{
    struct quire_error found;
    char what[96];
    describe(m, &m->calls[m->round & 1], what, sizeof what);
    for (uint32_t r = 0; r < m->shm.n_ranks; r++) {
        if (r == m->rank)
            continue;
        bool has_left = atomic_load(&m->shm.ranks[r]->state) == SHM_LEFT;
        if (has_left && r == waited_for && !has_come(m, r)) {
            quire_fail(&found, QUIRE_UNAVAILABLE, "rank %u (process %d) has left before %s", m->names[r],
                       (int)atomic_load(&m->shm.ranks[r]->process), what);
            return end_with(m, &found, QUIRE_UNAVAILABLE, err);
        }
        /* A rank that ends properly leaves before its process ends: it may have done both since the last look. */
        if (!has_left && is_dead(m, r) && atomic_load(&m->shm.ranks[r]->state) != SHM_LEFT) {
            quire_fail(&found, QUIRE_UNAVAILABLE, "rank %u (process %d) has died, at or before %s", m->names[r],
                       (int)atomic_load(&m->shm.ranks[r]->process), what);
            return end_with(m, &found, QUIRE_UNAVAILABLE, err);
        }
    }
    return QUIRE_OK;
}

/* `who` is a number in the whole group. */
static int late(struct shm_member *m, uint32_t who, uint32_t ms, struct quire_error *err)
{
    struct quire_error found;
    char what[96];
    int32_t process = atomic_load(&rank_of_all(m, who)->process);
    describe(m, &m->calls[m->round & 1], what, sizeof what);
    if (process == 0)
        quire_fail(&found, QUIRE_UNAVAILABLE, "rank %u has not joined the group for %.1f s, at %s", who, ms / 1e3,
                   what);
    else
        quire_fail(&found, QUIRE_UNAVAILABLE,
                   "rank %u (process %d) did not reach %s within %.1f s: it hangs or is stopped", who, (int)process,
                   what, ms / 1e3);
    return end_with(m, &found, QUIRE_UNAVAILABLE, err);
}

static bool spin(const struct shm_member *m, uint32_t r, uint64_t began)
{
    bool gives_away = m->keep_ns == 0;
    for (uint32_t i = 1; !has_come(m, r); i++) {
        uint64_t ns = gives_away || i % SPINS_PER_CLOCK_READ == 0 ? quire_now_ns() - began : 0;
        if (ns > SPIN_NS)
            return false;
        gives_away = gives_away || ns > m->keep_ns;
        if (gives_away)
            sched_yield();
        else
            cpu_relax();
    }
    return true;
}

/* Sleeps until the bell rings, at most ms; not at all if the event has already happened. */
static void sleep_for(struct shm_member *m, uint32_t r, uint32_t ms)
{
    struct shm_rank *self = m->shm.ranks[m->rank];
    struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    atomic_store(&self->asleep, 1);
    uint32_t bell = atomic_load(&self->bell);
    if (!has_come(m, r) && atomic_load(&m->shm.head->aborted_by) == 0 &&
        atomic_load(&m->shm.ranks[r]->state) != SHM_LEFT)
        syscall(SYS_futex, &self->bell, FUTEX_WAIT, bell, &most, NULL, 0);
    atomic_store(&self->asleep, 0);
}

/* How long nothing arrived, and the progress of the rank to blame meanwhile. */
struct patience {
    uint64_t slept_ns, stopped_ns;
    struct progress work;
};

/* Rank r has not come. Finds the rank that is waited for in the end: r, or the rank that r waits for, as a number in
 * the whole group. Also gets its progress: of its process while ranks load with several threads, otherwise of the
 * computing thread. */
static uint32_t find_culprit(const struct shm_member *m, uint32_t r, struct quire_process_look *look)
{
    const uint32_t n = (m->whole ? m->whole : m)->shm.n_ranks;
    uint32_t who = m->names[r];
    for (uint32_t i = 0;; i++) {
        const struct shm_rank *peer = rank_of_all(m, who);
        const uint32_t next = atomic_load(&peer->waits_for);
        quire_process_look(atomic_load(&peer->process), m->timeout_ms > STOPPED_MS ? 0 : atomic_load(&peer->thread),
                           look);
        if (next == 0 || next > n || next - 1 == m->names[m->rank] || look->is_stopped || i == n)
            return who;
        who = next - 1;
    }
}

/* Checks after ns more. A rank of another stage may compute for as long as it needs. */
static int check_late(struct shm_member *m, uint32_t r, uint64_t ns, struct patience *p, struct quire_error *err)
{
    const bool loads = m->timeout_ms > STOPPED_MS;
    struct quire_process_look look;
    p->slept_ns += ns;
    if (!loads && !m->is_patient && p->slept_ns < (uint64_t)m->timeout_ms * 1000000u)
        return QUIRE_OK;
    const uint32_t who = find_culprit(m, r, &look);
    const uint64_t thread = (uint32_t)atomic_load(&rank_of_all(m, who)->thread);
    progress_look(&p->work, (uint64_t)who << 32 | thread, &look, ns);
    p->stopped_ns = look.is_stopped ? p->stopped_ns + ns : 0;
    if (m->is_patient)
        p->slept_ns = p->work.idle_ns;
    if (loads && p->stopped_ns >= STOPPED_MS * UINT64_C(1000000))
        return late(m, who, STOPPED_MS, err);
    if (loads && p->work.idle_ns >= PROGRESS_LOADING_MS * UINT64_C(1000000))
        return late(m, who, PROGRESS_LOADING_MS, err);
    return p->slept_ns >= (uint64_t)m->timeout_ms * 1000000u ? late(m, who, m->timeout_ms, err) : QUIRE_OK;
}

static int wait_asleep(struct shm_member *m, uint32_t r, bool patient, struct quire_error *err)
{
    const uint64_t timeout_ns = (uint64_t)m->timeout_ms * 1000000u;
    struct patience p = {0};
    while (!has_come(m, r)) {
        uint64_t began = quire_now_ns(), left_ms = (timeout_ns - p.slept_ns) / 1000000u + 1;
        sleep_for(m, r, patient || left_ms > LOOK_UP_MS ? LOOK_UP_MS : (uint32_t)left_ms);
        if (has_come(m, r))
            break;
        int status = shm_member_check(m, err);
        if (status == QUIRE_OK)
            status = check_peers(m, r, err);
        const uint64_t ns = quire_now_ns() - began;
        if (status == QUIRE_OK && !patient)
            status = check_late(m, r, ns < LOOK_UP_MS * 1000000u ? ns : LOOK_UP_MS * 1000000u, &p, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

/* The other ranks determine whose fault it is that this rank is late. */
static int wait_long(struct shm_member *m, uint32_t r, bool patient, struct quire_error *err)
{
    struct shm_rank *self = rank_of_all(m, m->names[m->rank]);
    atomic_store(&self->waits_for, 1 + m->names[r]);
    int status = wait_asleep(m, r, patient, err);
    atomic_store(&self->waits_for, 0);
    return status;
}

static int wait_for(struct shm_member *m, uint32_t r, bool patient, struct quire_error *err)
{
    if (has_come(m, r))
        return QUIRE_OK;
    uint64_t began = quire_now_ns();
    int status = spin(m, r, began) ? QUIRE_OK : wait_long(m, r, patient, err);
    /* Counts until that rank came, not until this one looked, because this one may have been stopped meanwhile. */
    const uint64_t now = quire_now_ns(), came = m->shm.ranks[r]->calls[m->round & 1].published_ns;
    const uint64_t until = status == QUIRE_OK && came < now ? came : now;
    m->waited_ns[m->names[r]] += until > began ? until - began : 0;
    return status;
}

/* The peer is in this round or, with a separate slot, in the next one, so its call of this round is still valid. */
static int compare(struct shm_member *m, uint32_t r, struct quire_error *err)
{
    struct quire_error found;
    const struct shm_rank *peer = m->shm.ranks[r];
    const struct shm_call *want = &m->calls[m->round & 1], said = peer->calls[m->round & 1];
    if (atomic_load_explicit(&peer->round, memory_order_relaxed) - m->round > 1) {
        quire_fail(&found, QUIRE_INTERNAL, "the group's memory is corrupt: rank %u is ahead of rank %u", m->names[r],
                   m->names[m->rank]);
        return end_with(m, &found, QUIRE_INTERNAL, err);
    }
    if (said.number == want->number && said.operation == want->operation && said.root == want->root &&
        said.n_bytes == want->n_bytes)
        return QUIRE_OK;
    char ours[96], theirs[96];
    describe(m, want, ours, sizeof ours);
    describe(m, &said, theirs, sizeof theirs);
    quire_fail(&found, QUIRE_INVALID, "the ranks make different calls: rank %u is at %s, rank %u at %s",
               m->names[m->rank], ours, m->names[r], theirs);
    return end_with(m, &found, QUIRE_INVALID, err);
}

int shm_member_wait(struct shm_member *m, uint32_t of, bool patient, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t r = 0; r < m->shm.n_ranks && status == QUIRE_OK; r++) {
        if (r == m->rank || (of != SHM_EVERYBODY && r != of))
            continue;
        status = wait_for(m, r, patient, err);
        if (status == QUIRE_OK && m->checked != m->round)
            status = compare(m, r, err);
    }
    if (status == QUIRE_OK && of == SHM_EVERYBODY)
        m->checked = m->round;
    return status;
}
