#include "parallel/hosts/hosts_transport.h"

#include "parallel/hosts/member.h"
#include "parallel/tree.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in shared memory: from this size on, each rank adds a part of the vector and sends the sum to the others. */
#define PARTS_BYTES (32u << 10)

static size_t chunk_of(size_t n_bytes, size_t at)
{
    return n_bytes - at < MESSAGE_MAX_BYTES ? n_bytes - at : MESSAGE_MAX_BYTES;
}

static int send_to_all(struct member *m, const void *bytes, size_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++)
        if (r != m->rank)
            status = member_send(m, r, bytes, n, err);
    return status;
}

/* ---- all-reduce ---- */

static size_t part_of(const struct member *m, uint32_t r, size_t n)
{
    return n * r / m->n_ranks;
}

/* x[0 .. n) becomes the sum of what all ranks have sent of it. */
static int add(struct member *m, float *x, size_t n, struct quire_error *err)
{
    struct inbox_message *own = inbox_new(&m->ways->inbox), *from[COLLECTIVE_MAX_RANKS] = {NULL};
    const float *terms[COLLECTIVE_MAX_RANKS];
    int status = own ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++) {
        if (r == m->rank)
            from[r] = own;
        else
            status = member_receive(m, r, n * sizeof *x, false, &from[r], err);
        terms[r] = from[r] ? (const float *)(const void *)from[r]->payload : NULL;
    }
    if (status == QUIRE_OK && n > 0) {
        memcpy(own->payload, x, n * sizeof *x); /* the tree sum must not write to its input */
        tree_sum(x, terms, m->n_ranks, n);
    }
    for (uint32_t r = 0; r < m->n_ranks; r++)
        if (from[r] && from[r] != own)
            member_give_back(m, from[r]);
    if (own)
        member_give_back(m, own);
    return status;
}

/* Distributes each rank's part of n sums to all ranks. */
static int give_parts(struct member *m, float *x, size_t n, struct quire_error *err)
{
    const size_t begin = part_of(m, m->rank, n);
    int status = send_to_all(m, x + begin, (part_of(m, m->rank + 1, n) - begin) * sizeof *x, err);
    for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++) {
        struct inbox_message *message;
        const size_t at = part_of(m, r, n), n_bytes = (part_of(m, r + 1, n) - at) * sizeof *x;
        if (r == m->rank)
            continue;
        status = member_receive(m, r, n_bytes, false, &message, err);
        if (status != QUIRE_OK)
            return status;
        memcpy(x + at, message->payload, n_bytes);
        member_give_back(m, message);
    }
    return status;
}

static size_t floats_from(size_t n, size_t at)
{
    return chunk_of(n * sizeof(float), at * sizeof(float)) / sizeof(float);
}

/* Every rank adds the whole vector. A message is sent while the previous one is added, so the network's delay counts
 * once. */
static int reduce_whole(struct member *m, float *x, size_t n, struct quire_error *err)
{
    size_t at = 0, chunk = floats_from(n, 0);
    int status = send_to_all(m, x, chunk * sizeof *x, err);
    do {
        const size_t next = at + chunk, next_chunk = floats_from(n, next);
        if (status == QUIRE_OK && next_chunk > 0)
            status = send_to_all(m, x + next, next_chunk * sizeof *x, err);
        if (status == QUIRE_OK)
            status = add(m, x + at, chunk, err);
        at = next;
        chunk = next_chunk;
    } while (status == QUIRE_OK && chunk > 0);
    return status;
}

/* n floats that fit into a message; each rank adds a part of them. */
static int reduce_parts(struct member *m, float *x, size_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++) {
        const size_t at = part_of(m, r, n);
        if (r != m->rank)
            status = member_send(m, r, x + at, (part_of(m, r + 1, n) - at) * sizeof *x, err);
    }
    const size_t begin = part_of(m, m->rank, n);
    if (status == QUIRE_OK)
        status = add(m, x + begin, part_of(m, m->rank + 1, n) - begin, err);
    return status == QUIRE_OK ? give_parts(m, x, n, err) : status;
}

static int all_reduce_tree(void *state, float *x, size_t n, struct quire_error *err)
{
    struct member *m = state;
    int status = member_begin(m, MESSAGE_ALL_REDUCE, 0, n * sizeof *x, err);
    if (status != QUIRE_OK || m->n_ranks == 1)
        return status;
    if (m->n_ranks == 2 || n * sizeof *x < PARTS_BYTES)
        return reduce_whole(m, x, n, err);
    for (size_t at = 0, chunk; at < n && status == QUIRE_OK; at += chunk) {
        chunk = floats_from(n, at);
        status = reduce_parts(m, x + at, chunk, err);
    }
    return status;
}

/* ---- the others ---- */

/* Receives n bytes of rank r into `to`. */
static int take(struct member *m, uint32_t r, void *to, size_t n, bool patient, struct quire_error *err)
{
    struct inbox_message *message;
    int status = member_receive(m, r, n, patient, &message, err);
    if (status != QUIRE_OK)
        return status;
    if (n > 0)
        memcpy(to, message->payload, n);
    member_give_back(m, message);
    return QUIRE_OK;
}

static int all_gather(void *state, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    struct member *m = state;
    unsigned char *to = all;
    size_t at = 0;
    int status = member_begin(m, MESSAGE_ALL_GATHER, 0, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    if (n_bytes > 0)
        memmove(to + m->rank * n_bytes, mine, n_bytes);
    do {
        const size_t chunk = chunk_of(n_bytes, at);
        status = send_to_all(m, to + m->rank * n_bytes + at, chunk, err);
        for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++)
            if (r != m->rank)
                status = take(m, r, to + r * n_bytes + at, chunk, false, err);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

static int gather(void *state, const void *mine, size_t n_bytes, uint32_t root, void *all, struct quire_error *err)
{
    struct member *m = state;
    unsigned char *to = all;
    size_t at = 0;
    int status = member_begin(m, MESSAGE_GATHER, root, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    if (m->rank == root && n_bytes > 0)
        memmove(to + root * n_bytes, mine, n_bytes);
    do {
        const size_t chunk = chunk_of(n_bytes, at);
        if (m->rank != root)
            status = member_send(m, root, (const unsigned char *)mine + at, chunk, err);
        for (uint32_t r = 0; m->rank == root && r < m->n_ranks && status == QUIRE_OK; r++)
            if (r != root)
                status = take(m, r, to + r * n_bytes + at, chunk, false, err);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

static int broadcast(void *state, void *x, size_t n_bytes, uint32_t root, bool patient, struct quire_error *err)
{
    struct member *m = state;
    unsigned char *bytes = x;
    size_t at = 0;
    int status = member_begin(m, MESSAGE_BROADCAST, root, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    do {
        const size_t chunk = chunk_of(n_bytes, at);
        status = m->rank == root ? send_to_all(m, bytes + at, chunk, err)
                                 : take(m, root, bytes + at, chunk, patient && at == 0, err);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

static int barrier(void *state, struct quire_error *err)
{
    struct member *m = state;
    int status = member_begin(m, MESSAGE_BARRIER, 0, 0, err);
    if (status == QUIRE_OK)
        status = send_to_all(m, NULL, 0, err);
    for (uint32_t r = 0; r < m->n_ranks && status == QUIRE_OK; r++)
        if (r != m->rank)
            status = take(m, r, NULL, 0, false, err);
    return status;
}

static int check(const void *state, struct quire_error *err)
{
    return member_check(state, err);
}

static void end(void *state, const char *why)
{
    member_end(state, why);
}

static void set_timeout(void *state, uint32_t timeout_ms)
{
    struct member *m = state;
    m->timeout_ms = timeout_ms;
    if (m->group == 0)
        peers_load(m->ways->peers, timeout_ms > COLLECTIVE_TIMEOUT_MS);
}

static void be_patient(void *state)
{
    ((struct member *)state)->is_patient = true;
}

/* ---- opening ---- */

static int open_part(void *state, uint32_t part, const uint32_t *ranks, uint32_t n_ranks, void **out,
                     struct quire_error *err)
{
    struct member *whole = state;
    if (whole->ways->parts & 1u << part)
        return quire_fail(err, QUIRE_INVALID, "part %u of the group is already in use by this rank", part);
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    whole->ways->parts |= 1u << part;
    m->ways = whole->ways;
    m->group = 1 + part;
    m->n_ranks = n_ranks;
    m->timeout_ms = whole->timeout_ms;
    for (uint32_t r = 0; r < n_ranks; r++) {
        m->names[r] = ranks[r];
        if (ranks[r] == whole->rank)
            m->rank = r;
    }
    *out = m;
    return QUIRE_OK;
}

struct member *hosts_transport_new(uint32_t rank, uint32_t size, uint32_t timeout_ms, uint64_t *waited_ns,
                                   struct quire_error *err)
{
    cpu_set_t set;
    struct member *m = calloc(1, sizeof *m);
    struct member_ways *ways = calloc(1, sizeof *ways);
    if (!m || !ways) {
        free(m);
        free(ways);
        quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        return NULL;
    }
    ways->n_cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    ways->waited_ns = waited_ns;
    inbox_open(&ways->inbox);
    m->ways = ways;
    m->rank = rank;
    m->n_ranks = size;
    m->timeout_ms = timeout_ms;
    for (uint32_t r = 0; r < size; r++)
        m->names[r] = r;
    return m;
}

struct inbox *hosts_transport_inbox(struct member *m)
{
    return &m->ways->inbox;
}

void hosts_transport_set(struct member *m, struct peers *peers, const struct carrier *carrier, void *carrier_state)
{
    m->ways->peers = peers;
    m->ways->carrier = carrier;
    m->ways->carrier_state = carrier_state;
}

void hosts_transport_free(struct member *m)
{
    inbox_close(&m->ways->inbox);
    free(m->ways);
    free(m);
}

/* Sends data first: a rank that learns that this rank has left finds all earlier data. */
static void leave(void *state)
{
    struct member *m = state;
    struct member_ways *ways = m->ways;
    if (m->group > 0) {
        ways->parts &= ~(1u << (m->group - 1));
        free(m);
        return;
    }
    ways->carrier->close(ways->carrier_state, peers_check(ways->peers, NULL) == QUIRE_OK);
    peers_close(ways->peers);
    hosts_transport_free(m);
}

const struct transport hosts_transport = {
    .all_reduce_tree = all_reduce_tree,
    .all_gather = all_gather,
    .gather = gather,
    .broadcast = broadcast,
    .barrier = barrier,
    .check = check,
    .abort = end,
    .set_timeout = set_timeout,
    .be_patient = be_patient,
    .open_part = open_part,
    .leave = leave,
};
