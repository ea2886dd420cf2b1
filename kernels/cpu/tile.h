/* Declarations for the files of the tile form (docs/internals/numerics.md §6): the layout of a GEMM's activations in
 * its workspace, and how weights and activations become tiles. simd/words.h has the vectors.
 * Pure; any thread.
 *
 * The workspace: groups of 16 tokens of n_tiles x 2 KiB. A group has one of two layouts:
 *   words:  [tile][term][pair of k][token], (k even, k odd) as bf16 in one 32-bit word: AMX's B
 *           operand, and the load of a vector of tokens;
 *   floats: [tile][token][term][k], for a vector of rows: at most 8 tokens.
 * Columns past the last are zeros. A denormal term is stored as a zero with its sign. */
#ifndef QUIRE_KERNELS_CPU_TILE_H
#define QUIRE_KERNELS_CPU_TILE_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/words.h"

#include <stdint.h>
#include <string.h>

#define TILE_DEPTH 32u
#define TILE_PAIRS 16u
#define TILE_TOKENS 16u
#define TILE_MAX_TERMS 2u
#define TILE_GROUP_WORDS (TILE_TOKENS * TILE_PAIRS * TILE_MAX_TERMS) /* per tile of a group */
#define TILE_FLOAT_TOKENS 8u

/* ---- the workspace --------------------------------------------------------------------------- */

CPU_INLINE uint32_t tile_count(const struct cpu_gemm *task)
{
    return task->tile[task->n_segments];
}

/* Returns a tile's first column, and the end of its segment, which may be inside the tile. */
CPU_INLINE uint32_t tile_column(const struct cpu_gemm *task, uint32_t tile, uint32_t *end)
{
    uint32_t segment = 0;
    while (tile >= task->tile[segment + 1])
        segment++;
    *end = task->column[segment + 1];
    return task->column[segment] + (tile - task->tile[segment]) * TILE_DEPTH;
}

CPU_INLINE uint32_t *tile_group(const struct cpu_gemm *task, uint64_t group)
{
    return (uint32_t *)task->args.workspace_dev + group * tile_count(task) * TILE_GROUP_WORDS;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Loads a tile's part of one row as bf16, in one term (BF16) or two (F16), padded with zeros from `end` on. */
CPU_INLINE void tile_stage_row(const unsigned char *row, enum k_dtype dtype, uint32_t column, uint32_t end,
                               uint16_t first[TILE_DEPTH], uint16_t second[TILE_DEPTH])
{
    uint32_t depth = end - column < TILE_DEPTH ? end - column : TILE_DEPTH;
    uint16_t stored[TILE_DEPTH] = {0};
    memcpy(stored, (const uint16_t *)(const void *)row + column, depth * sizeof *stored);
    if (dtype == K_BF16) {
        memcpy(first, stored, sizeof stored);
        return;
    }
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load_f16(stored + k), &high, &low);
        words_store_high(first + k, high);
        words_store_high(second + k, low);
    }
}

/* Returns the number of bf16 terms of a weight. */
CPU_INLINE uint32_t tile_weight_terms(enum k_dtype dtype)
{
    return dtype == K_F16 ? 2 : 1;
}

/* ---- work of a piece ------------------------------------------------------------------------- */

#define TILE_SHARE_ROWS 16u /* a piece's rows: 16 at a time, so that few row blocks are incomplete */

/* Adds the bias last, with denormals kept. */
CPU_INLINE void tile_add_bias(const struct k_gemm_args *a, const struct host_part *part, uint32_t row_begin,
                              uint32_t row_end)
{
    for (uint32_t t = 0; a->bias_dev && t < a->n_tokens; t++) {
        float *y = a->y_dev + (uint64_t)t * a->weight->n_rows + part->first_row;
        for (uint32_t i = row_begin; i < row_end; i++)
            y[i] += a->bias_dev[part->first_row + i];
    }
}

#endif
