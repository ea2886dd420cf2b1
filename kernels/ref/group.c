/* The operations of ranks on host memory. They use the group's functions. */
#include "kernels/ref/ref.h"

#include "kernels/math/checksum.h"

#include <string.h>

int ref_all_reduce(struct k_backend *b, const struct k_all_reduce_args *a, struct quire_error *err)
{
    const struct k_group *g = &host_of(b)->group;
    int status = k_check_group("all_reduce", g, err);
    if (status == QUIRE_OK)
        status = g->all_reduce_tree(g->context, a->x_dev, (size_t)a->n_tokens * a->n_cols, err);
    for (uint32_t t = 0; status == QUIRE_OK && a->bias_dev && t < a->n_tokens; t++)
        for (uint32_t c = 0; c < a->n_cols; c++)
            a->x_dev[(size_t)t * a->n_cols + c] += a->bias_dev[c];
    return status;
}

static uint32_t widest(const struct k_all_gather_args *a, uint32_t n_ranks)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < n_ranks; r++)
        if (a->first_cols[r + 1] - a->first_cols[r] > most)
            most = a->first_cols[r + 1] - a->first_cols[r];
    return most;
}

/* Gathers all rows in one call and then moves each part to its position. */
static int gather_to_all(const struct k_group *g, const struct k_all_gather_args *a, struct quire_error *err)
{
    const uint32_t *first = a->first_cols, n_all = first[g->n_ranks], n_own = first[g->rank + 1] - first[g->rank];
    const size_t slot = (size_t)a->n_tokens * widest(a, g->n_ranks);
    float *mine = a->scratch_dev + g->rank * slot;
    if (mine != a->own_dev)
        memcpy(mine, a->own_dev, (size_t)a->n_tokens * n_own * sizeof *mine);
    int status = g->all_gather(g->context, mine, slot * sizeof *mine, a->scratch_dev, err);
    for (uint32_t r = 0; r < g->n_ranks && status == QUIRE_OK; r++)
        for (size_t t = 0; t < a->n_tokens; t++)
            memcpy(a->out_dev + t * n_all + first[r], a->scratch_dev + r * slot + t * (first[r + 1] - first[r]),
                   (first[r + 1] - first[r]) * sizeof *mine);
    return status;
}

/* Gathers row by row, directly to the final position: 32 rows of 152,064 are 19 MB, and each copy of them takes 3
 * ms. */
static int gather_to_first(const struct k_group *g, const struct k_all_gather_args *a, struct quire_error *err)
{
    const uint32_t *first = a->first_cols, n_all = first[g->n_ranks], n_own = first[g->rank + 1] - first[g->rank];
    const size_t most = widest(a, g->n_ranks);
    const bool fits = g->n_ranks * most == n_all;
    int status = QUIRE_OK;
    for (size_t t = 0; t < a->n_tokens && status == QUIRE_OK; t++) {
        float *row = a->out_dev + t * n_all, *to = fits ? row : a->scratch_dev;
        status = g->gather(g->context, a->own_dev + t * n_own, most * sizeof *row, to, err);
        for (uint32_t r = 0; r < g->n_ranks && status == QUIRE_OK && !fits && g->rank == 0; r++)
            memcpy(row + first[r], to + r * most, (first[r + 1] - first[r]) * sizeof *row);
    }
    return status;
}

int ref_all_gather(struct k_backend *b, const struct k_all_gather_args *a, struct quire_error *err)
{
    const struct k_group *g = &host_of(b)->group;
    int status = k_check_group("all_gather", g, err);
    if (status == QUIRE_OK)
        status = k_check_all_gather(a, g, err);
    if (status != QUIRE_OK)
        return status;
    return a->to_first ? gather_to_first(g, a, err) : gather_to_all(g, a, err);
}

int ref_checksum(struct k_backend *b, const struct k_checksum_args *a, struct quire_error *err)
{
    const uint32_t n = a->n_tokens * a->n_cols;
    uint64_t sum = 0;
    (void)b;
    (void)err;
    for (uint32_t i = 0; i < n; i++)
        sum += k_checksum_term(a->x_dev[i], i);
    *a->sum_dev += sum;
    return QUIRE_OK;
}
