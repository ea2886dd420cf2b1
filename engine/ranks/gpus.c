#include "engine/ranks/gpus.h"

#include <stdio.h>
#include <string.h>

int gpus_tell(struct collective *c, const struct k_gpu_id *seen, uint32_t n, struct rank_gpus *all,
              struct quire_error *err)
{
    const uint32_t rank = collective_rank(c), size = collective_size(c);
    struct rank_gpus own;
    memset(&own, 0, sizeof own);
    quire_host_id(own.host);
    own.n = n;
    if (n > 0)
        memcpy(own.seen, seen, n * sizeof *seen);
    int status = collective_all_gather(c, &own, sizeof own, all, err);
    for (uint32_t r = 0; r < size && status == QUIRE_OK; r++) {
        all[r].host[sizeof all[r].host - 1] = '\0';
        if (all[r].n > K_MAX_GPUS)
            status = quire_fail(err, QUIRE_INVALID, "rank %u reported %u GPUs to rank %u", r, rank, all[r].n);
    }
    return status;
}

/* The lower rank that takes this GPU, or `rank` if it is free. */
static uint32_t find_owner(const struct rank_gpus *all, const uint32_t *taken, uint32_t rank, const struct k_gpu_id *id)
{
    for (uint32_t r = 0; r < rank; r++)
        if (all[r].n > 0 && memcmp(&all[r].seen[taken[r]], id, sizeof *id) == 0)
            return r;
    return rank;
}

static int refuse(const struct rank_gpus *all, const uint32_t *taken, uint32_t rank, struct quire_error *err)
{
    char owners[8 * COLLECTIVE_MAX_RANKS] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < all[rank].n && at < sizeof owners; i++)
        at += (size_t)snprintf(owners + at, sizeof owners - at, "%s%u", i > 0 ? ", " : "",
                               find_owner(all, taken, rank, &all[rank].seen[i]));
    return quire_fail(
        err, QUIRE_INVALID,
        "no GPU is left for rank %u on host %.*s: it sees %u from --device's number on, taken by rank%s %s; run one rank per GPU of the "
        "host, or give each rank its own GPU by CUDA_VISIBLE_DEVICES",
        rank, (int)strcspn(all[rank].host, " "), all[rank].host, all[rank].n, all[rank].n > 1 ? "s" : "", owners);
}

int gpus_deal(const struct rank_gpus *all, uint32_t n_ranks, uint32_t *taken, struct quire_error *err)
{
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint32_t i = 0;
        while (i < all[r].n && find_owner(all, taken, r, &all[r].seen[i]) != r)
            i++;
        if (all[r].n > 0 && i == all[r].n)
            return refuse(all, taken, r, err);
        taken[r] = i;
    }
    return QUIRE_OK;
}

bool gpus_are_across_hosts(const struct rank_gpus *all, uint32_t first, uint32_t n)
{
    for (uint32_t r = first + 1; r < first + n; r++)
        if (strcmp(all[r].host, all[first].host) != 0)
            return true;
    return false;
}
