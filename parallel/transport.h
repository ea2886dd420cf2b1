/* What carries collectives: a table of functions, so that the door (collective.h, whose promises these keep) knows no shared
 * memory and another carrier knows no door. Called by one thread of a rank, `check` and `abort` by any. */
#ifndef QUIRE_PARALLEL_TRANSPORT_H
#define QUIRE_PARALLEL_TRANSPORT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport {
    int (*all_reduce_tree)(void *state, float *x, size_t n, struct quire_error *err);
    int (*all_gather)(void *state, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    int (*gather)(void *state, const void *mine, size_t n_bytes, uint32_t root, void *all, struct quire_error *err);
    /* patient: those that are not root wait without a time-out. */
    int (*broadcast)(void *state, void *x, size_t n_bytes, uint32_t root, bool patient, struct quire_error *err);
    int (*barrier)(void *state, struct quire_error *err);
    int (*check)(const void *state, struct quire_error *err);
    void (*abort)(void *state, const char *why);
    void (*set_timeout)(void *state, uint32_t timeout_ms);
    void (*be_lenient)(void *state);
    /* What the door says of collective_open_part(), which has checked them. *out: a state of this transport. */
    int (*open_part)(void *state, uint32_t part, const uint32_t *ranks, uint32_t n_ranks, void **out,
                     struct quire_error *err);
    void (*leave)(void *state); /* and frees state */
};

/* For who opens a transport: a collective of one, by which callers know this rank's place. `open` makes its state, once, before
 * this returns. waited_ns: [COLLECTIVE_MAX_RANKS], the collective's, where the time for each peer is added up. */
typedef int transport_open_fn(void *context, uint64_t *waited_ns, uint32_t *size, void **state,
                              struct quire_error *err);
struct collective;
int transport_collective(const struct transport *transport, uint32_t rank, transport_open_fn *open, void *context,
                         struct collective **out, struct quire_error *err);

#endif
