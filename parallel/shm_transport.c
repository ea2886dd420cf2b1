#include "parallel/shm_transport.h"

#include "parallel/shm_member.h"
#include "parallel/tree.h"

#include <stdlib.h>
#include <string.h>

/* From this size on, each rank adds a part of the vector and sends the sum to the others. Below it, each rank adds the
 * whole vector, in one round instead of two. With 2 ranks both ways move the same bytes between CPUs, so the first is
 * never used. */
#define PARTS_BYTES (32u << 10)

int shm_transport_open(int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns, uint32_t *size, void **state,
                       struct quire_error *err)
{
    struct shm_member *m = malloc(sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = shm_member_open(m, fd, rank, timeout_ms, waited_ns, err);
    if (status != QUIRE_OK) {
        free(m);
        return status;
    }
    *size = m->shm.n_ranks;
    *state = m;
    return QUIRE_OK;
}

/* ---- rounds ---- */

static int begin_call(struct shm_member *m, enum shm_operation operation, uint32_t root, size_t n_bytes,
                      struct quire_error *err)
{
    m->call = (struct shm_call){
        .number = m->call.number + 1, .operation = (uint16_t)operation, .root = (uint16_t)root, .n_bytes = n_bytes};
    return shm_member_check(m, err);
}

/* This rank's slot of the next round, after its last readers have finished: when all ranks have published the round
 * between. */
static int open_round(struct shm_member *m, unsigned char **slot, struct quire_error *err)
{
    *slot = m->shm.slots[m->rank][(m->round + 1) & 1];
    return shm_member_wait(m, SHM_EVERYBODY, false, err);
}

static int close_round(struct shm_member *m, struct quire_error *err)
{
    shm_member_publish(m);
    return shm_member_wait(m, SHM_EVERYBODY, false, err);
}

/* The slot of rank r in the closed round. */
static unsigned char *slot_of(const struct shm_member *m, uint32_t r)
{
    return m->shm.slots[r][m->round & 1];
}

static size_t chunk_of(const struct shm_member *m, size_t n_bytes, size_t at)
{
    return n_bytes - at < m->shm.slot_bytes ? n_bytes - at : m->shm.slot_bytes;
}

/* ---- all-reduce ---- */

/* x[from .. to) becomes the sum of the slots. */
static void add(const struct shm_member *m, float *x, size_t from, size_t to)
{
    const float *slots[COLLECTIVE_MAX_RANKS];
    for (uint32_t r = 0; r < m->shm.n_ranks; r++)
        slots[r] = (const float *)(const void *)slot_of(m, r) + from;
    tree_sum(x + from, slots, m->shm.n_ranks, to - from);
}

static size_t part_of(const struct shm_member *m, uint32_t r, size_t n)
{
    return n * r / m->shm.n_ranks;
}

/* Distributes each rank's part of n sums to all ranks. */
static int give_parts(struct shm_member *m, float *x, size_t n, struct quire_error *err)
{
    size_t begin = part_of(m, m->rank, n);
    unsigned char *slot;
    int status = open_round(m, &slot, err);
    if (status != QUIRE_OK)
        return status;
    memcpy(slot, x + begin, (part_of(m, m->rank + 1, n) - begin) * sizeof *x);
    status = close_round(m, err);
    for (uint32_t r = 0; r < m->shm.n_ranks && status == QUIRE_OK; r++) {
        size_t at = part_of(m, r, n);
        if (r != m->rank)
            memcpy(x + at, slot_of(m, r), (part_of(m, r + 1, n) - at) * sizeof *x);
    }
    return status;
}

/* n floats that fit into a slot. */
static int reduce_chunk(struct shm_member *m, float *x, size_t n, struct quire_error *err)
{
    unsigned char *slot;
    int status = open_round(m, &slot, err);
    if (status != QUIRE_OK)
        return status;
    if (n > 0)
        memcpy(slot, x, n * sizeof *x);
    status = close_round(m, err);
    if (status != QUIRE_OK || m->shm.n_ranks == 1)
        return status;
    if (m->shm.n_ranks == 2 || n * sizeof *x < PARTS_BYTES) {
        add(m, x, 0, n);
        return QUIRE_OK;
    }
    add(m, x, part_of(m, m->rank, n), part_of(m, m->rank + 1, n));
    return give_parts(m, x, n, err);
}

static int all_reduce_tree(void *state, float *x, size_t n, struct quire_error *err)
{
    struct shm_member *m = state;
    size_t at = 0, n_bytes = n * sizeof *x;
    int status = begin_call(m, SHM_ALL_REDUCE, 0, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    do {
        size_t chunk = chunk_of(m, n_bytes, at);
        status = reduce_chunk(m, x + at / sizeof *x, chunk / sizeof *x, err);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

/* ---- the others ---- */

static int all_gather(void *state, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    struct shm_member *m = state;
    unsigned char *to = all, *slot;
    size_t at = 0;
    int status = begin_call(m, SHM_ALL_GATHER, 0, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    if (n_bytes > 0)
        memmove(to + m->rank * n_bytes, mine, n_bytes);
    do {
        size_t chunk = chunk_of(m, n_bytes, at);
        status = open_round(m, &slot, err);
        if (status != QUIRE_OK)
            return status;
        if (chunk > 0)
            memcpy(slot, to + m->rank * n_bytes + at, chunk);
        status = close_round(m, err);
        for (uint32_t r = 0; r < m->shm.n_ranks && status == QUIRE_OK && chunk > 0; r++)
            if (r != m->rank)
                memcpy(to + r * n_bytes + at, slot_of(m, r), chunk);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

/* The root reads what the others wrote; those wait only for slots that are still being read. */
static int gather(void *state, const void *mine, size_t n_bytes, uint32_t root, void *all, struct quire_error *err)
{
    struct shm_member *m = state;
    unsigned char *to = all, *slot;
    const bool is_root = m->rank == root;
    size_t at = 0;
    int status = begin_call(m, SHM_GATHER, root, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    if (is_root && n_bytes > 0)
        memmove(to + root * n_bytes, mine, n_bytes);
    do {
        size_t chunk = chunk_of(m, n_bytes, at);
        status = open_round(m, &slot, err);
        if (status != QUIRE_OK)
            return status;
        if (!is_root && chunk > 0)
            memcpy(slot, (const unsigned char *)mine + at, chunk);
        shm_member_publish(m);
        if (is_root)
            status = shm_member_wait(m, SHM_EVERYBODY, false, err);
        for (uint32_t r = 0; is_root && r < m->shm.n_ranks && status == QUIRE_OK && chunk > 0; r++)
            if (r != root)
                memcpy(to + r * n_bytes + at, slot_of(m, r), chunk);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

/* The root waits only for slots that are still being read; the others wait for the root only. */
static int broadcast_chunk(struct shm_member *m, unsigned char *x, size_t chunk, bool patient, struct quire_error *err)
{
    const uint32_t root = m->call.root;
    unsigned char *slot;
    int status = open_round(m, &slot, err);
    if (status != QUIRE_OK)
        return status;
    if (m->rank == root && chunk > 0)
        memcpy(slot, x, chunk);
    shm_member_publish(m);
    if (m->rank == root)
        return QUIRE_OK;
    status = shm_member_wait(m, root, patient, err);
    if (status == QUIRE_OK && chunk > 0)
        memcpy(x, slot_of(m, root), chunk);
    return status;
}

static int broadcast(void *state, void *x, size_t n_bytes, uint32_t root, bool patient, struct quire_error *err)
{
    struct shm_member *m = state;
    size_t at = 0;
    int status = begin_call(m, SHM_BROADCAST, root, n_bytes, err);
    if (status != QUIRE_OK)
        return status;
    do {
        size_t chunk = chunk_of(m, n_bytes, at);
        status = broadcast_chunk(m, (unsigned char *)x + at, chunk, patient && at == 0, err);
        at += chunk;
    } while (at < n_bytes && status == QUIRE_OK);
    return status;
}

static int barrier(void *state, struct quire_error *err)
{
    struct shm_member *m = state;
    unsigned char *slot;
    int status = begin_call(m, SHM_BARRIER, 0, 0, err);
    if (status == QUIRE_OK)
        status = open_round(m, &slot, err);
    return status == QUIRE_OK ? close_round(m, err) : status;
}

static int check(const void *state, struct quire_error *err)
{
    return shm_member_check(state, err);
}

static void end(void *state, const char *why)
{
    shm_member_end(state, QUIRE_UNAVAILABLE, why);
}

static void set_timeout(void *state, uint32_t timeout_ms)
{
    ((struct shm_member *)state)->timeout_ms = timeout_ms;
}

static void be_patient(void *state)
{
    ((struct shm_member *)state)->is_patient = true;
}

static int open_part(void *state, uint32_t part, const uint32_t *ranks, uint32_t n_ranks, void **out,
                     struct quire_error *err)
{
    struct shm_member *m = malloc(sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = shm_member_open_part(m, state, part, ranks, n_ranks, err);
    if (status != QUIRE_OK) {
        free(m);
        return status;
    }
    *out = m;
    return QUIRE_OK;
}

static void leave(void *state)
{
    shm_member_close(state);
    free(state);
}

const struct transport shm_transport = {
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
