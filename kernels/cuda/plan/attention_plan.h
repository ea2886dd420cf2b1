/* How a step's attention is divided among the blocks of the mma kernel (attention_mma.cu): what attention_plan.c writes
 * and the kernels read. Host arithmetic; C and CUDA read this file.
 *
 * The queries of a sequence that read one KV head are its tokens times the group's heads, in that order: query i is
 * token i / group, head i % group. They are cut into query tiles: all in one of ATTN_SMALL rows where there are no more,
 * else ATTN_LARGE at a time. A query tile walks its splits (docs/numerics.md §10) in one unit, or is cut between splits:
 * each part is a unit, and partials (m, l, o) go to the workspace. The part with the first split has folded its own, and
 * leaves one partial; any other leaves one for each split. So which unit a split is in moves no bit. The block whose part
 * is finished last, as a counter in the plan tells it, folds the partials left to right: so it moves none either. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H
#define QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H

#include "kernels/kernels.h"

#define ATTN_SMALL 16u
#define ATTN_LARGE 64u
#define ATTN_MOST_LARGE 128u /* the widest heads that have large query tiles */
/* Blocks of the kernel that has small query tiles only that an SM's registers hold; two of the other. */
#define ATTN_SMALL_PER_SM(head_dim) ((head_dim) <= ATTN_MOST_LARGE ? 3u : 2u)
/* Most blocks of a grid: three on each of 170 SMs; a B200 has 148. Memory is planned for them, since it is planned without a GPU. */
#define ATTN_MAX_BLOCKS 512u
/* Workspace for partials, at most. What a decoding step cuts is at most all KV that a device holds: 600k tokens of an 8B model on
 * 80 GB are 9,400 splits of 8 heads, each with 4 queries × 132 floats: 20 MB. Prefill cuts a query tile at the end of
 * each block's share: 264 × 64 queries × 5 splits × 132 floats, 45 MB; what does not fit is not cut. */
#define ATTN_PARTIAL_BYTES (UINT64_C(48) << 20)
#define ATTN_NO_PARTIAL UINT32_MAX
/* A partial is a row for each of the tile's queries: o [head_dim], m, l, and two floats that keep rows on 16 bytes. */
#define ATTN_PARTIAL_FLOATS(head_dim) ((head_dim) + 4u)

struct attn_unit {
    uint32_t token, position, table; /* of the sequence, as in k_attn_row */
    uint32_t query; /* the tile's first, counted from the sequence's first */
    uint16_t kv_head;
    uint8_t n_queries; /* at most ATTN_SMALL takes the small kernel */
    uint8_t partial_rows; /* from a split's partial to the next; 0: one for all, since it has the first split */
    uint32_t first_split, end_split;
    uint32_t partial; /* its first row, or ATTN_NO_PARTIAL: it has all splits, and writes the output */
    uint32_t merge; /* of its partials, where it has some */
};
struct attn_merge {
    uint32_t token, query;
    uint16_t kv_head, n_queries;
    uint32_t partial, n_partials; /* partial i begins with row partial + i × n_queries */
    uint32_t n_units; /* that leave them: at least two */
};

/* The plan as it lies in device memory: this, then [n_blocks + 1] first units of the blocks, [n_merges] units that have
 * arrived, merges, units. Arrivals are 0 before a launch and after it: the last one begins anew. */
struct attn_plan {
    uint32_t n_blocks, n_merges, n_units;
    uint32_t arrivals_at, merges_at, units_at; /* bytes from the plan's beginning */
    uint32_t reserved[2];
};

#ifndef __cplusplus
/* Whether all query tiles of these rows have at most ATTN_SMALL queries. rows NULL: each has a token, as recorded steps. */
bool attn_is_small(const struct k_attn_row *rows, uint32_t n_rows, uint32_t group, uint32_t head_dim);

/* Partial rows that fit the workspace, at most. */
static inline uint32_t attn_partial_rows(uint32_t head_dim)
{
    return (uint32_t)(ATTN_PARTIAL_BYTES / ((uint64_t)ATTN_PARTIAL_FLOATS(head_dim) * sizeof(float)));
}

/* Bytes that a plan of this step may take. */
uint64_t attn_plan_bytes(uint64_t n_seqs, uint64_t n_tokens, uint32_t n_q_heads, uint32_t n_kv_heads,
                         uint32_t head_dim);

/* Fills `plan`, of attn_plan_bytes(), for a grid of n_blocks (at most ATTN_MAX_BLOCKS); partials get at most
 * `partial_rows` rows. Returns the bytes written. Blocks' shares of KV tiles are equal up to half a split at each end, or a
 * 48th of a share. */
uint64_t attn_plan_make(const struct k_attention_plan_args *a, uint32_t n_blocks, uint32_t partial_rows,
                        struct attn_plan *plan);
#endif

#endif
