#include "parallel/collective.h"

#include "parallel/shm.h"
#include "parallel/shm_transport.h"

#include <stdbool.h>
#include <stdlib.h>

struct collective {
    const struct transport *transport;
    void *state;
    struct collective *whole; /* of a part; NULL for a whole group */
    uint32_t rank, size;
    struct collective_stats stats; /* not used in a part */
};

int collective_create_shared(uint32_t n_ranks, int *fd, struct quire_error *err)
{
    return shm_create(n_ranks, fd, err);
}

int transport_collective(const struct transport *transport, uint32_t rank, transport_open_fn *open, void *context,
                         struct collective **out, struct quire_error *err)
{
    struct collective *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->transport = transport;
    c->rank = rank;
    int status = open(context, c->stats.waited_ns, &c->size, &c->state, err);
    if (status != QUIRE_OK) {
        free(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

struct shared_place {
    int fd;
    uint32_t rank, timeout_ms;
};

static int open_shared(void *context, uint64_t *waited_ns, uint32_t *size, void **state, struct quire_error *err)
{
    const struct shared_place *place = context;
    return shm_transport_open(place->fd, place->rank, place->timeout_ms, waited_ns, size, state, err);
}

size_t collective_shared_bytes(uint32_t rank, uint32_t n_groups)
{
    return shm_bytes(rank, n_groups);
}

int collective_join_shared(int fd, uint32_t rank, uint32_t timeout_ms, struct collective **out, struct quire_error *err)
{
    struct shared_place place = {fd, rank, timeout_ms ? timeout_ms : COLLECTIVE_TIMEOUT_MS};
    return transport_collective(&shm_transport, rank, open_shared, &place, out, err);
}

/* Returns whether the ranks are in ascending order, below the size, and include this rank. */
static bool can_be_part(const struct collective *c, const uint32_t *ranks, uint32_t n_ranks, uint32_t *place)
{
    bool has_own = false;
    for (uint32_t i = 0; i < n_ranks; i++) {
        if (ranks[i] >= c->size || (i > 0 && ranks[i] <= ranks[i - 1]))
            return false;
        if (ranks[i] == c->rank) {
            has_own = true;
            *place = i;
        }
    }
    return has_own;
}

int collective_open_part(struct collective *c, uint32_t part, const uint32_t *ranks, uint32_t n_ranks,
                         struct collective **out, struct quire_error *err)
{
    struct collective *made = calloc(1, sizeof *made);
    if (!made)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = QUIRE_OK;
    if (c->whole || part >= COLLECTIVE_MAX_PARTS || !can_be_part(c, ranks, n_ranks, &made->rank))
        status = quire_fail(err, QUIRE_INVALID,
                            "part %u of a group of %u: the ranks must be listed in ascending "
                            "order",
                            part, c->size);
    if (status == QUIRE_OK)
        status = c->transport->open_part(c->state, part, ranks, n_ranks, &made->state, err);
    if (status != QUIRE_OK) {
        free(made);
        return status;
    }
    made->transport = c->transport;
    made->whole = c;
    made->size = n_ranks;
    *out = made;
    return QUIRE_OK;
}

void collective_be_patient(struct collective *c)
{
    c->transport->be_patient(c->state);
}

void collective_leave(struct collective *c)
{
    if (!c)
        return;
    c->transport->leave(c->state);
    free(c);
}

uint32_t collective_rank(const struct collective *c)
{
    return c->rank;
}

uint32_t collective_size(const struct collective *c)
{
    return c->size;
}

void collective_set_timeout(struct collective *c, uint32_t timeout_ms)
{
    c->transport->set_timeout(c->state, timeout_ms);
}

static void count(struct collective *c, size_t n_bytes)
{
    struct collective_stats *s = c->whole ? &c->whole->stats : &c->stats;
    s->calls++;
    s->bytes += n_bytes;
}

int collective_all_reduce_tree(struct collective *c, float *x, size_t n, struct quire_error *err)
{
    if ((c->size & (c->size - 1)) != 0)
        return quire_fail(err, QUIRE_INVALID, "all-reduce: the tree needs 1, 2, 4 or 8 ranks, got %u", c->size);
    count(c, n * sizeof *x);
    return c->transport->all_reduce_tree(c->state, x, n, err);
}

int collective_all_gather(struct collective *c, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    count(c, n_bytes);
    return c->transport->all_gather(c->state, mine, n_bytes, all, err);
}

int collective_gather(struct collective *c, const void *mine, size_t n_bytes, uint32_t root, void *all,
                      struct quire_error *err)
{
    if (root >= c->size)
        return quire_fail(err, QUIRE_INVALID, "gather: rank %u does not exist; the group has %u ranks", root, c->size);
    count(c, n_bytes);
    return c->transport->gather(c->state, mine, n_bytes, root, all, err);
}

static int broadcast(struct collective *c, void *x, size_t n_bytes, uint32_t root, bool patient,
                     struct quire_error *err)
{
    if (root >= c->size)
        return quire_fail(err, QUIRE_INVALID, "broadcast: rank %u does not exist; the group has %u ranks", root,
                          c->size);
    count(c, n_bytes);
    return c->transport->broadcast(c->state, x, n_bytes, root, patient, err);
}

int collective_broadcast(struct collective *c, void *x, size_t n_bytes, uint32_t root, struct quire_error *err)
{
    return broadcast(c, x, n_bytes, root, false, err);
}

int collective_broadcast_when_ready(struct collective *c, void *x, size_t n_bytes, uint32_t root,
                                    struct quire_error *err)
{
    return broadcast(c, x, n_bytes, root, true, err);
}

int collective_barrier(struct collective *c, struct quire_error *err)
{
    count(c, 0);
    return c->transport->barrier(c->state, err);
}

int collective_check(const struct collective *c, struct quire_error *err)
{
    return c->transport->check(c->state, err);
}

void collective_abort(struct collective *c, const char *why)
{
    c->transport->abort(c->state, why);
}

void collective_get_stats(const struct collective *c, struct collective_stats *out)
{
    *out = c->stats;
}
