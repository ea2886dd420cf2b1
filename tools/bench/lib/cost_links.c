#include "tools/bench/lib/cost_links.h"

#include "base/encoding/number.h"

#include <string.h>

/* The memory of one host: quire bench collectives on two cores of a Sapphire Rapids, 1.4 us for 4 KiB, 10.8 for 64 KiB
 * and 550 for 4 MiB (docs/benchmarks/collectives.json). The GPUs' links were not measured: the bandwidth is 0.7 of the
 * vendor's figure per direction (NVLink 4: 450 GB/s, PCIe 5.0 x16: 63 GB/s). The time of a call is vLLM's published
 * figure for its one-shot all-reduce of 16 KiB over eight H100s, 6 to 8 us, and over PCIe NCCL's time, about 20 us. */
static const struct cost_link links[] = {
    {"shared-memory", "measured", 0.8, 7.6e3, true},
    {"nvlink", "published figures, not measured", 7, 0.7 * 450e3, false},
    {"pcie", "published figures, not measured", 20, 0.7 * 63e3, false},
};
#define N_LINKS (sizeof links / sizeof links[0])

const struct cost_link *cost_link_at(uint32_t index)
{
    return index < N_LINKS ? &links[index] : NULL;
}

const struct cost_link *cost_link_find(const char *text, struct cost_link *room)
{
    const char *at = text;
    for (size_t i = 0; i < N_LINKS; i++)
        if (strcmp(text, links[i].name) == 0)
            return &links[i];
    *room = (struct cost_link){.name = text, .from = "said"};
    double gb_s;
    if (!quire_take_number(&at, COST_LINK_MOST, &room->call_us) || *at++ != ',' ||
        !quire_take_number(&at, COST_LINK_MOST, &gb_s) || *at || gb_s < COST_LINK_LEAST_GB_S)
        return NULL;
    room->bytes_us = gb_s * 1e3;
    return room;
}

double cost_all_reduce_us(const struct cost_link *link, uint32_t n_ranks, double n_bytes)
{
    const double factor = link->reads_all ? n_ranks - 1 : 2.0 * (n_ranks - 1) / n_ranks;
    return link->call_us + factor * n_bytes / link->bytes_us;
}

int cost_share(struct sched_cost *cost, const struct cost_shape *shape, uint32_t n_ranks, const struct cost_link *link,
               struct quire_error *err)
{
    const double share = 1.0 / n_ranks, n_sums = 2.0 * shape->n_layers;
    for (uint32_t i = 0; i < cost->n_points; i++) {
        const double n_bytes = 4.0 * shape->hidden_size * cost->points[i].n_tokens;
        cost->points[i].us = cost->points[i].us * share + n_sums * cost_all_reduce_us(link, n_ranks, n_bytes);
    }
    cost->logit_us = cost->logit_us * share + link->call_us +
                     4.0 * shape->vocab_size * (n_ranks - 1) * share / link->bytes_us;
    cost->context_us *= share;
    cost->pair_us *= share;
    cost->block_copy_us *= share;
    return sched_cost_check(cost, err);
}
