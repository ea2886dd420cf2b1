#include "parallel/hosts/member.h"

#include "base/clock.h"
#include "parallel/progress.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* As between ranks of one host (shm_member.c): calls in quick succession end while a rank polls. */
#define KEEP_NS 500
#define SPIN_NS 50000
/* A sleeper is woken by what it waits for. At most this much of each sleep counts against the time-out. */
#define LOOK_UP_MS 100

/* ---- end of a group ---- */

int member_check(const struct member *m, struct quire_error *err)
{
    return peers_check(m->ways->peers, err);
}

void member_end(struct member *m, const char *why)
{
    peers_end(m->ways->peers, QUIRE_UNAVAILABLE, why);
}

/* Ends the group with the error that this rank found. If another rank has already ended it, that rank's reason is the
 * cause. */
static int end_with(struct member *m, enum quire_status status, const struct quire_error *found,
                    struct quire_error *err)
{
    peers_end(m->ways->peers, status, found->text);
    return member_check(m, err);
}

static const char *name_of(const struct member *m, uint32_t r)
{
    return peers_name(m->ways->peers, m->names[r]);
}

static struct message_call *call_of(struct member *m, uint32_t number)
{
    return &m->calls[number % MEMBER_CALLS];
}

/* "call 12 (all-reduce of 4096 bytes)" */
static void describe(const struct member *m, const struct message_call *call, char *to, size_t n)
{
    static const char *const names[] = {
        [MESSAGE_ALL_REDUCE] = "all-reduce", [MESSAGE_ALL_GATHER] = "all-gather", [MESSAGE_GATHER] = "gather"};
    if (call->operation == MESSAGE_BARRIER)
        snprintf(to, n, "call %u (barrier)", call->number);
    else if (call->operation == MESSAGE_BROADCAST)
        snprintf(to, n, "call %u (broadcast of %llu bytes by rank %u)", call->number, (unsigned long long)call->n_bytes,
                 call->root < m->n_ranks ? m->names[call->root] : call->root);
    else
        snprintf(to, n, "call %u (%s of %llu bytes)", call->number, names[call->operation],
                 (unsigned long long)call->n_bytes);
}

int member_begin(struct member *m, enum message_operation operation, uint32_t root, size_t n_bytes,
                 struct quire_error *err)
{
    m->n_calls++;
    peers_compute(m->ways->peers, (int32_t)gettid());
    *call_of(m, m->n_calls) = (struct message_call){m->n_calls, (uint16_t)operation, (uint16_t)root, n_bytes};
    return member_check(m, err);
}

/* ---- waiting ---- */

/* The event of a wait: a message, or the end of a send. */
struct wait {
    uint32_t r; /* number in this group */
    bool is_sending;
    struct inbox_message *message;
    bool is_there;
};

static int look(struct member *m, struct wait *w, uint32_t from, struct quire_error *err)
{
    struct member_ways *ways = m->ways;
    const uint32_t r = m->names[w->r];
    int status = QUIRE_OK;
    if (w->is_sending)
        status = ways->carrier->send(ways->carrier_state, r, NULL, NULL, &w->is_there, err);
    if (status == QUIRE_OK && !w->is_there)
        status = ways->carrier->receive(ways->carrier_state, from, err);
    if (status == QUIRE_OK && !w->is_sending) {
        w->message = inbox_take(&ways->inbox, r, m->group);
        w->is_there = w->message != NULL;
    }
    if (status == QUIRE_OK)
        return QUIRE_OK;
    struct quire_error found;
    quire_fail(&found, status, "%s sent an invalid message, or it could not be stored: %.200s",
               from == CARRIER_EVERYBODY ? "a rank" : name_of(m, w->r), err ? err->text : "");
    return end_with(m, QUIRE_UNAVAILABLE, &found, err);
}

/* Its connection has ended, and all its data is read. The listening thread knows the reason, now or in a moment. */
static int explain_closed(struct member *m, uint32_t r, struct quire_error *err)
{
    char what[96];
    struct quire_error found;
    const uint64_t until_ms = quire_now_ms() + 1000;
    describe(m, call_of(m, m->n_calls), what, sizeof what);
    while (quire_now_ms() < until_ms && !peers_has_left(m->ways->peers, m->names[r]) &&
           member_check(m, NULL) == QUIRE_OK)
        poll(NULL, 0, 1);
    if (peers_has_left(m->ways->peers, m->names[r]))
        quire_fail(&found, QUIRE_UNAVAILABLE, "%s has left before %s", name_of(m, r), what);
    else
        quire_fail(&found, QUIRE_UNAVAILABLE, "%s has closed its connection, before %s", name_of(m, r), what);
    return end_with(m, QUIRE_UNAVAILABLE, &found, err);
}

/* `who` is a number in the whole group. */
static int late(struct member *m, uint32_t who, uint32_t ms, struct quire_error *err)
{
    char what[96];
    struct quire_error found;
    describe(m, call_of(m, m->n_calls), what, sizeof what);
    quire_fail(&found, QUIRE_UNAVAILABLE, "%s did not reach %s within %.1f s: it hangs or is stopped",
               peers_name(m->ways->peers, who), what, ms * 1e-3);
    return end_with(m, QUIRE_UNAVAILABLE, &found, err);
}

/* How long nothing arrived, and the progress of the rank to blame meanwhile. */
struct patience {
    uint64_t slept_ns;
    struct progress work;
};

/* Checks after ns more of waiting for rank r. A rank of another stage may compute for as long as it needs. */
static int check_late(struct member *m, uint32_t r, uint64_t ns, struct patience *p, struct quire_error *err)
{
    const uint32_t who = peers_blame(m->ways->peers, m->names[r]);
    const struct quire_process_look look = {.work_ns = peers_work_ns(m->ways->peers, who)};
    const bool loads = m->timeout_ms > COLLECTIVE_TIMEOUT_MS;
    progress_look(&p->work, who, &look, ns);
    p->slept_ns = m->is_patient ? p->work.idle_ns : p->slept_ns + ns;
    if (loads && p->work.idle_ns >= PROGRESS_LOADING_MS * UINT64_C(1000000))
        return late(m, who, PROGRESS_LOADING_MS, err);
    return p->slept_ns >= (uint64_t)m->timeout_ms * 1000000u ? late(m, who, m->timeout_ms, err) : QUIRE_OK;
}

/* Polls for a short time. */
static int spin(struct member *m, struct wait *w, uint64_t began, struct quire_error *err)
{
    const uint64_t keep_ns = m->ways->n_cpus >= m->n_ranks ? KEEP_NS : 0;
    int status = look(m, w, m->names[w->r], err);
    for (uint64_t ns = 0; status == QUIRE_OK && !w->is_there && ns < SPIN_NS; ns = quire_now_ns() - began) {
        if (ns > keep_ns)
            sched_yield();
        status = look(m, w, m->names[w->r], err);
    }
    return status;
}

/* That a rank has left may be known before what it sent is here, by another way. */
static int look_longer(struct member *m, struct wait *w, struct quire_error *err)
{
    const uint64_t until_ms = quire_now_ms() + LOOK_UP_MS;
    int status = QUIRE_OK;
    while (status == QUIRE_OK && !w->is_there && !m->ways->inbox.peers[m->names[w->r]].is_closed &&
           quire_now_ms() < until_ms) {
        sched_yield();
        status = look(m, w, CARRIER_EVERYBODY, err);
    }
    return status;
}

/* One that left may have sent before what is waited for: it is looked at last. */
static int look_at_peer(struct member *m, struct wait *w, struct quire_error *err)
{
    struct member_ways *ways = m->ways;
    const uint32_t r = m->names[w->r];
    const bool has_left = peers_has_left(ways->peers, r);
    int status = member_check(m, err);
    if (status == QUIRE_OK)
        status = look(m, w, CARRIER_EVERYBODY, err);
    if (status != QUIRE_OK || w->is_there)
        return status;
    if (has_left && !ways->inbox.peers[r].is_closed)
        status = look_longer(m, w, err);
    if (status != QUIRE_OK || w->is_there)
        return status;
    if (ways->inbox.peers[r].is_closed || has_left)
        return explain_closed(m, w->r, err);
    if (!w->is_sending && !inbox_has_place(&ways->inbox, r)) {
        struct quire_error found;
        quire_fail(&found, QUIRE_INVALID, "%s is ahead by %u messages of other groups", name_of(m, w->r), INBOX_PLACES);
        return end_with(m, QUIRE_INVALID, &found, err);
    }
    return QUIRE_OK;
}

static int wait_asleep(struct member *m, struct wait *w, bool patient, struct quire_error *err)
{
    struct member_ways *ways = m->ways;
    const int wake_fd = peers_wake_fd(ways->peers);
    const uint64_t timeout_ns = (uint64_t)m->timeout_ms * 1000000u;
    struct patience p = {0};
    int status = look_at_peer(m, w, err);
    while (status == QUIRE_OK && !w->is_there) {
        eventfd_t woken;
        uint64_t began = quire_now_ns(), left_ms = (timeout_ns - p.slept_ns) / 1000000u + 1;
        ways->carrier->sleep(ways->carrier_state, w->is_sending ? m->names[w->r] : CARRIER_EVERYBODY, wake_fd,
                             patient || left_ms > LOOK_UP_MS ? LOOK_UP_MS : (uint32_t)left_ms);
        eventfd_read(wake_fd, &woken);
        status = look_at_peer(m, w, err);
        const uint64_t ns = quire_now_ns() - began;
        if (status == QUIRE_OK && !w->is_there && !patient)
            status = check_late(m, w->r, ns < LOOK_UP_MS * 1000000u ? ns : LOOK_UP_MS * 1000000u, &p, err);
    }
    return status;
}

static int wait_for(struct member *m, struct wait *w, bool patient, struct quire_error *err)
{
    const uint64_t began = quire_now_ns();
    int status = spin(m, w, began, err);
    if (status == QUIRE_OK && !w->is_there) {
        peers_wait_for(m->ways->peers, m->names[w->r]);
        status = wait_asleep(m, w, patient, err);
        peers_wait_for(m->ways->peers, PEERS_NOBODY);
    }
    m->ways->waited_ns[m->names[w->r]] += quire_now_ns() - began;
    return status;
}

/* ---- messages ---- */

int member_send(struct member *m, uint32_t to, const void *bytes, size_t n, struct quire_error *err)
{
    struct member_ways *ways = m->ways;
    struct wait w = {.r = to, .is_sending = true};
    const struct message_head head = {*call_of(m, m->n_calls), (uint16_t)m->group, (uint32_t)n};
    int status = ways->carrier->send(ways->carrier_state, m->names[to], &head, bytes, &w.is_there, err);
    if (status != QUIRE_OK || w.is_there)
        return status;
    return wait_for(m, &w, false, err);
}

/* The peer should make the same call. If it is behind, it makes one that this rank has already made. */
static int compare(struct member *m, uint32_t r, const struct message_head *head, size_t n, struct quire_error *err)
{
    const struct message_call *want = call_of(m, m->n_calls), *said = &head->call;
    if (said->number == want->number && said->operation == want->operation && said->root == want->root &&
        said->n_bytes == want->n_bytes && head->n_payload == n)
        return QUIRE_OK;
    char ours[96], theirs[96];
    struct quire_error found;
    if (m->n_calls - said->number < MEMBER_CALLS)
        want = call_of(m, said->number);
    describe(m, want, ours, sizeof ours);
    describe(m, said, theirs, sizeof theirs);
    quire_fail(&found, QUIRE_INVALID, "the ranks make different calls: rank %u is at %s, rank %u at %s",
               m->names[m->rank], ours, m->names[r], theirs);
    return end_with(m, QUIRE_INVALID, &found, err);
}

int member_receive(struct member *m, uint32_t from, size_t n, bool patient, struct inbox_message **out,
                   struct quire_error *err)
{
    struct wait w = {.r = from};
    int status = wait_for(m, &w, patient, err);
    if (status == QUIRE_OK)
        status = compare(m, from, &w.message->head, n, err);
    if (status == QUIRE_OK)
        *out = w.message;
    else if (w.message)
        member_give_back(m, w.message);
    return status;
}

void member_give_back(struct member *m, struct inbox_message *message)
{
    inbox_give_back(&m->ways->inbox, message);
}
