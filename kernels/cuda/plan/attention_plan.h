/* The division of a step's attention among the blocks of the mma kernel (attention_mma.cu). attention_plan.c writes it
 * and the kernels read it. Host arithmetic; any thread on its own values. Compiled as C and as CUDA.
 *
 * The queries of a sequence that read one KV head are its tokens times the group's heads, in that order: query i is
 * token i / group, head i % group. They are divided into query tiles: one tile if there are at most ATTN_SMALL rows,
 * otherwise ATTN_LARGE rows at a time. A query tile processes its splits (docs/internals/numerics.md §10) in one unit,
 * or is divided between splits. Then each part is a unit, and partials (m, l, o) go to the workspace. The part with the
 * first split has folded its own splits and leaves one partial; each other part leaves one per split. So the bits do
 * not depend on which unit a split is in. The block that finishes last, according to a counter in the plan, folds the
 * partials left to right, so the bits do not depend on which block that is either.
 */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H
#define QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H

#include "kernels/args/attention.h"

#define ATTN_SMALL 16u
#define ATTN_LARGE 64u
#define ATTN_MOST_LARGE 128u /* the widest heads with large query tiles */
/* Blocks per SM, limited by registers, of the kernel with small query tiles; two of the other kernel. */
#define ATTN_SMALL_PER_SM(head_dim) ((head_dim) <= ATTN_MOST_LARGE ? 3u : 2u)
/* Maximum blocks of a grid: three on each of 170 SMs; a B200 has 148. Memory is planned for this maximum, because
 * planning works without a GPU. */
#define ATTN_MAX_BLOCKS 512u
/* Maximum workspace for partials. A decoding step divides at most all KV that a device holds: 600k tokens of an 8B
 * model on 80 GB are 9,400 splits of 8 heads, each with 4 queries × 132 floats: 20 MB. Prefill divides a query tile at
 * the end of each block's share: 264 × 64 queries × 5 splits × 132 floats, 45 MB. Query tiles whose partials do not fit
 * are not divided. */
#define ATTN_PARTIAL_BYTES (UINT64_C(48) << 20)
#define ATTN_NO_PARTIAL UINT32_MAX
/* A partial is a row for each of the tile's queries: o [head_dim], m, l, and two floats that align rows to 16 bytes. */
#define ATTN_PARTIAL_FLOATS(head_dim) ((head_dim) + 4u)

struct attn_unit {
    uint32_t token, position, table; /* the sequence's, as in k_attn_row */
    uint32_t query; /* the tile's first query, relative to the sequence's first */
    uint16_t kv_head;
    uint8_t n_queries; /* up to ATTN_SMALL use the small kernel */
    uint8_t partial_rows; /* from one split's partial to the next; 0: one partial for all splits, because it has the
                           * first split */
    uint32_t first_split, end_split;
    uint32_t partial; /* its first row, or ATTN_NO_PARTIAL: the unit has all splits and writes the output */
    uint32_t merge; /* the merge of its partials, if it has some */
};
struct attn_merge {
    uint32_t token, query;
    uint16_t kv_head, n_queries;
    uint32_t partial, n_partials; /* partial i begins at row partial + i × n_queries */
    uint32_t n_units; /* units that leave them; at least two */
};

/* The plan in device memory: this struct, then [n_blocks + 1] first units of the blocks, [n_merges] counters of arrived
 * units, merges, units. The counters are 0 before and after a launch; the last arrival resets them. */
struct attn_plan {
    uint32_t n_blocks, n_merges, n_units;
    uint32_t arrivals_at, merges_at, units_at; /* bytes from the start of the plan */
    uint32_t reserved[2];
};

#ifndef __cplusplus
/* Returns whether all query tiles of these rows have at most ATTN_SMALL queries. rows NULL: each row has one token, as
 * in recorded steps. */
bool attn_is_small(const struct k_attn_row *rows, uint32_t n_rows, uint32_t group, uint32_t head_dim);

/* Returns the maximum number of partial rows that fit the workspace. */
static inline uint32_t attn_partial_rows(uint32_t head_dim)
{
    return (uint32_t)(ATTN_PARTIAL_BYTES / ((uint64_t)ATTN_PARTIAL_FLOATS(head_dim) * sizeof(float)));
}

/* Returns the maximum bytes of a plan for this step. */
uint64_t attn_plan_bytes(uint64_t n_seqs, uint64_t n_tokens, uint32_t n_q_heads, uint32_t n_kv_heads,
                         uint32_t head_dim);

/* Fills `plan`, which has attn_plan_bytes(), for a grid of n_blocks (at most ATTN_MAX_BLOCKS). Partials get at most
 * `partial_rows` rows. Returns the bytes written. The blocks' shares of KV tiles are equal up to half a split at each
 * end, or a 48th of a share. */
uint64_t attn_plan_make(const struct k_attention_plan_args *a, uint32_t n_blocks, uint32_t partial_rows,
                        struct attn_plan *plan);
#endif

#endif
