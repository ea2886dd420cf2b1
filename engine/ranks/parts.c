#include "engine/ranks/parts.h"

#include <string.h>

/* Parts of the whole group: one for each stage, one for the link that begins at a rank, and the way back. */
#define PART_OF_LINK 8u
#define PART_BACK 15u

static int open_stage(struct collective *whole, uint32_t n_places, struct rank_parts *out, struct quire_error *err)
{
    uint32_t ranks[COLLECTIVE_MAX_RANKS];
    const uint32_t stage = collective_rank(whole) / n_places;
    for (uint32_t i = 0; i < n_places; i++)
        ranks[i] = stage * n_places + i;
    return n_places > 1 ? collective_open_part(whole, stage, ranks, n_places, &out->stage, err) : QUIRE_OK;
}

/* A patient wait, because the other rank first computes its own layers. */
static int open_pair(struct collective *whole, uint32_t part, uint32_t first, uint32_t second, struct collective **out,
                     struct quire_error *err)
{
    int status = collective_open_part(whole, part, (const uint32_t[]){first, second}, 2, out, err);
    if (status == QUIRE_OK)
        collective_be_patient(*out);
    return status;
}

uint32_t parts_count(uint32_t rank, uint32_t n_ranks, uint32_t n_stages)
{
    const uint32_t n_places = n_ranks / n_stages, stage = rank / n_places;
    if (n_stages == 1)
        return 0;
    return (n_places > 1 ? 1u : 0) + (stage > 0 ? 1u : 0) + (stage + 1 < n_stages ? 1u : 0) +
           (rank == 0 || rank == n_ranks - n_places ? 1u : 0);
}

int parts_open(struct collective *whole, uint32_t n_stages, struct rank_parts *out, struct quire_error *err)
{
    const uint32_t rank = collective_rank(whole), size = collective_size(whole), n_places = size / n_stages;
    const uint32_t stage = rank / n_places, last = size - n_places;
    memset(out, 0, sizeof *out);
    out->whole = whole;
    if (n_stages == 1) {
        out->stage = whole;
        return QUIRE_OK;
    }
    collective_be_patient(whole);
    int status = open_stage(whole, n_places, out, err);
    if (status == QUIRE_OK && stage > 0)
        status = open_pair(whole, PART_OF_LINK + rank - n_places, rank - n_places, rank, &out->before, err);
    if (status == QUIRE_OK && stage + 1 < n_stages)
        status = open_pair(whole, PART_OF_LINK + rank, rank, rank + n_places, &out->next, err);
    if (status == QUIRE_OK && (rank == 0 || rank == last))
        status = open_pair(whole, PART_BACK, 0, last, &out->back, err);
    return status;
}

void parts_close(struct rank_parts *parts)
{
    if (parts->stage != parts->whole)
        collective_leave(parts->stage);
    collective_leave(parts->before);
    collective_leave(parts->next);
    collective_leave(parts->back);
    memset(parts, 0, sizeof *parts);
}

/* A broadcast's root only reads what it gives. */
static int give(struct collective *pair, const void *x, size_t n_bytes, struct quire_error *err)
{
    return collective_broadcast(pair, (void *)(uintptr_t)x, n_bytes, collective_rank(pair), err);
}

static int take(struct collective *pair, void *x, size_t n_bytes, struct quire_error *err)
{
    return collective_broadcast(pair, x, n_bytes, 1 - collective_rank(pair), err);
}

int parts_send(struct rank_parts *parts, const void *x, size_t n_bytes, struct quire_error *err)
{
    return give(parts->next, x, n_bytes, err);
}

int parts_receive(struct rank_parts *parts, void *x, size_t n_bytes, struct quire_error *err)
{
    return take(parts->before, x, n_bytes, err);
}

int parts_send_back(struct rank_parts *parts, const void *x, size_t n_bytes, struct quire_error *err)
{
    return give(parts->back, x, n_bytes, err);
}

int parts_receive_back(struct rank_parts *parts, void *x, size_t n_bytes, struct quire_error *err)
{
    return take(parts->back, x, n_bytes, err);
}
