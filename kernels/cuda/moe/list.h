/* The experts' GEMMs on a GPU (docs/internals/numerics.md §20). A launch of list.cu sorts a step's choices by expert and
 * divides them into tiles: some choices of one expert. Then one launch of a grouped kernel computes all tiles. Its grid
 * has space for as many tiles as there can be, so that it does not depend on what the router chose and can be recorded;
 * a block past the last tile ends at once.
 *
 * A place is a position in the sorted order: a tile's choices have neighbouring places. A grouped kernel is a dense
 * kernel whose tokens are a tile's places: it reads its rows of x and writes its rows of y through `order`. Which
 * choices share a tile changes no bit.
 *
 * Private to kernels/cuda; the engine's thread. */
#ifndef QUIRE_KERNELS_CUDA_MOE_LIST_H
#define QUIRE_KERNELS_CUDA_MOE_LIST_H

#include "kernels/args/moe.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_moe_tile { /* places [first, first + n) */
    uint32_t expert; /* of the weight's */
    uint32_t first, n;
    uint32_t unused; /* 16 bytes, one load */
};

struct cuda_moe_list {
    uint32_t *n_tiles_dev;
    struct cuda_moe_tile *tiles_dev; /* [n_choices] */
    uint32_t *order_dev; /* [n_choices] the choice at a place: token * n_used + index */
    uint32_t choices_per_row; /* choices that read one row of x: n_used, or 1 */
};

/* The experts' part of a GEMM's call. */
struct cuda_moe_call {
    const struct k_moe_gemm_args *args;
    struct cuda_moe_list list;
    uint32_t n_choices;
    bool rounds_by_choice; /* int8: each expert rounds by its own scale or order of columns */
};

/* Returns the list that begins at workspace_dev; cuda_moe_list_bytes() long. */
static inline struct cuda_moe_list cuda_moe_list_at(void *workspace_dev, const struct k_moe_gemm_args *a)
{
    unsigned char *at = (unsigned char *)workspace_dev;
    const uint64_t n = (uint64_t)a->n_tokens * a->n_used;
    const struct cuda_moe_list list = {
        (uint32_t *)(void *)at, (struct cuda_moe_tile *)(void *)(at + CUDA_MOE_LIST_HEAD_BYTES),
        (uint32_t *)(void *)(at + CUDA_MOE_LIST_HEAD_BYTES + n * sizeof(struct cuda_moe_tile)),
        a->per_choice ? 1 : a->n_used};
    return list;
}

/* Returns the most tiles of at most `tokens` choices that any choice of experts leads to. */
static inline uint32_t cuda_moe_most_tiles(const struct cuda_moe_call *m, uint32_t n_experts, uint32_t tokens)
{
    const uint64_t n_used = n_experts < m->n_choices ? n_experts : m->n_choices;
    return (uint32_t)((m->n_choices + n_used * (tokens - 1)) / tokens);
}

/* list.cu. Makes the list, with tiles of at most tile_tokens places, and writes the rows of choices whose expert another
 * rank holds. */
cudaError_t launch_moe_list(cudaStream_t stream, const struct cuda_moe_call *m, const struct cuda_gated *gated,
                            uint32_t n_experts, uint32_t n_rows, uint32_t tile_tokens);
cudaError_t launch_moe_combine(cudaStream_t stream, const struct k_moe_combine_args *a);
/* route.cu */
cudaError_t launch_moe_route(cudaStream_t stream, const struct k_moe_route_args *a);

#ifdef __cplusplus
}
#endif

#endif
