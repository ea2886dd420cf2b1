/* What carries collectives: a table of functions, so that collective.h, whose contract it implements, is independent of
 * shared memory and of other carriers. Called by one thread of a rank; `check` and `abort` by any thread. */
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
    /* patient: ranks other than the root wait without a time-out. */
    int (*broadcast)(void *state, void *x, size_t n_bytes, uint32_t root, bool patient, struct quire_error *err);
    int (*barrier)(void *state, struct quire_error *err);
    int (*check)(const void *state, struct quire_error *err);
    void (*abort)(void *state, const char *why);
    void (*set_timeout)(void *state, uint32_t timeout_ms);
    void (*be_patient)(void *state);
    /* Implements collective_open_part(), which has checked the ranks. *out: a state of this transport. */
    int (*open_part)(void *state, uint32_t part, const uint32_t *ranks, uint32_t n_ranks, void **out,
                     struct quire_error *err);
    void (*leave)(void *state); /* and frees state */
};

/* For code that opens a transport. Makes a collective of one transport, with this rank's number. `open` makes its
 * state, once, before this function returns. waited_ns: [COLLECTIVE_MAX_RANKS], owned by the collective, receives the
 * waiting time per peer. */
typedef int transport_open_fn(void *context, uint64_t *waited_ns, uint32_t *size, void **state,
                              struct quire_error *err);
struct collective;
int transport_collective(const struct transport *transport, uint32_t rank, transport_open_fn *open, void *context,
                         struct collective **out, struct quire_error *err);

#endif
