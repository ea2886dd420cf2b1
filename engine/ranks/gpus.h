/* Which GPU each rank computes on. A rank takes, of the GPUs that its process sees from --device's number on, the first that no
 * smaller rank takes. So ranks of a host that all see the same GPUs have one after the other, those that see one each have that
 * one (Slurm's --gpus-per-task, pods of a node), and none is had by two. Nobody need say which rank of its host this is: a GPU has
 * an id of its own, so that hosts are no matter here.
 */
#ifndef QUIRE_ENGINE_RANKS_GPUS_H
#define QUIRE_ENGINE_RANKS_GPUS_H

#include "parallel/host_id.h"
#include "kernels/kernels.h"
#include "parallel/collective.h"

/* What a rank tells the others. */
struct rank_gpus {
    char host[QUIRE_HOST_ID_BYTES]; /* quire_host_id()'s */
    uint32_t n; /* 0: it has none, and says why later */
    struct k_gpu_id seen[K_MAX_GPUS];
};

/* All ranks together, once. seen: [n]. all: [size], by rank. */
int gpus_tell(struct collective *c, const struct k_gpu_id *seen, uint32_t n, struct rank_gpus *all,
              struct quire_error *err);

/* taken: [n_ranks], a place among what each sees; of a rank that sees none 0. QUIRE_INVALID: nothing is left for a rank, and the message
 * says who has what it sees. Pure. */
int gpus_deal(const struct rank_gpus *all, uint32_t n_ranks, uint32_t *taken, struct quire_error *err);

/* Whether not all of ranks [first, first + n) are on one host. */
bool gpus_are_across_hosts(const struct rank_gpus *all, uint32_t first, uint32_t n);

#endif
