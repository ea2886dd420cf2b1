/* The ranks that compute a pass together, as kernels see them. The caller implements the functions; a backend calls
 * them from the engine's thread, except where a function says otherwise. */
#ifndef QUIRE_KERNELS_GROUP_H
#define QUIRE_KERNELS_GROUP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define K_MAX_RANKS 8u

/* The ranks that compute a pass together, one process each, from the view of one of them. The functions work on host
 * memory. All ranks make the same calls in the same order. A status other than QUIRE_OK ends the group. A backend on
 * host memory exchanges all data through them. A device, whose kernels access the peers' memory directly, uses them to
 * find its peers. */
struct k_group {
    void *context;
    uint32_t rank, n_ranks; /* n_ranks is 2, 4 or 8 */
    uint32_t first; /* the number that messages use for rank 0 of this stage, because ranks are numbered over all
                     * stages */
    bool is_across_hosts; /* the ranks are on several hosts; devices cannot access each other's memory */
    /* x = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) over the ranks, in place (docs/internals/numerics.md §5) */
    int (*all_reduce_tree)(void *context, float *x, size_t n, struct quire_error *err);
    /* all: [ranks][n_bytes]. mine may already be at its position in all. */
    int (*all_gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* The same, but only the first rank receives the data. */
    int (*gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* Returns QUIRE_OK, or the reason why the group has ended. Any thread. */
    int (*check)(void *context, struct quire_error *err);
    void (*abort)(void *context, const char *why); /* ends the group for all ranks. Any thread. */
    uint32_t timeout_ms; /* how long a call waits for another rank */
};

#endif
