/* Assigns GPUs to ranks. Of the GPUs that its process sees, counted from the number in --device, a rank takes the
 * first that no lower rank takes. So ranks of a host that see the same GPUs take one after the other, ranks that see
 * one GPU each take that one (Slurm's --gpus-per-task, pods of a node), and two ranks never share a GPU. No rank
 * needs to know its number within its host. Each GPU has a unique id, so hosts need no special handling.
 */
#ifndef QUIRE_ENGINE_RANKS_GPUS_H
#define QUIRE_ENGINE_RANKS_GPUS_H

#include "parallel/host_id.h"
#include "kernels/open.h"
#include "parallel/collective.h"

/* The GPUs that a rank reports to the others. */
struct rank_gpus {
    char host[QUIRE_HOST_ID_BYTES]; /* quire_host_id()'s */
    uint32_t n; /* 0: the rank sees no GPU and reports the reason later */
    struct k_gpu_id seen[K_MAX_GPUS];
};

/* All ranks together, once. seen: [n]. all: [size], by rank. */
int gpus_tell(struct collective *c, const struct k_gpu_id *seen, uint32_t n, struct rank_gpus *all,
              struct quire_error *err);

/* taken: [n_ranks], an index into the GPUs that each rank sees; 0 for a rank that sees no GPU. Returns QUIRE_INVALID
 * if no GPU is left for a rank; the message names the owners of the GPUs that it sees. Pure. */
int gpus_deal(const struct rank_gpus *all, uint32_t n_ranks, uint32_t *taken, struct quire_error *err);

/* Whether not all of ranks [first, first + n) are on one host. */
bool gpus_are_across_hosts(const struct rank_gpus *all, uint32_t first, uint32_t n);

#endif
