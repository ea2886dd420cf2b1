/* Splits a GEMM's activations into bf16 terms and stores them in its workspace, whose layout tile.h describes. Pure; a
 * piece of the work to each thread. */
#ifndef QUIRE_KERNELS_CPU_TILE_SPLIT_H
#define QUIRE_KERNELS_CPU_TILE_SPLIT_H

#include "kernels/cpu/tile.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Stores one token's activations of a tile, as words `width` apart. */
CPU_INLINE void tile_split_words(const float x[TILE_DEPTH], uint32_t n_terms, uint32_t width, uint32_t *out)
{
    uint16_t terms[TILE_MAX_TERMS][TILE_DEPTH];
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load(x + k), &high, &low);
        words_store_high(terms[0] + k, high);
        words_store_high(terms[1] + k, low);
    }
    for (uint32_t term = 0; term < n_terms; term++) {
        for (uint32_t p = 0; p < TILE_PAIRS; p++)
            memcpy(out + ((uint64_t)term * TILE_PAIRS + p) * width, &terms[term][2 * p], 4);
    }
}

CPU_INLINE void tile_split_floats(const float x[TILE_DEPTH], uint32_t n_terms, float *out)
{
    for (uint32_t k = 0; k < TILE_DEPTH; k += VEC_WIDTH) {
        words high, low;
        vec_split(vec_load(x + k), &high, &low);
        vec_store(out + k, vec_of(high));
        if (n_terms > 1)
            vec_store(out + TILE_DEPTH + k, vec_of(low));
    }
}

/* Stores a piece's share of the activations in the workspace: groups of `width` tokens as words, or a group of at most
 * max_float_tokens as floats. */
CPU_INLINE void tile_split(const struct cpu_gemm *task, uint32_t width, uint32_t max_float_tokens, struct k_piece piece)
{
    const struct k_gemm_args *a = &task->args;
    const uint32_t n_cols = a->weight->n_cols, n_terms = task->n_terms;
    const uint64_t n_tiles = tile_count(task);
    const uint64_t n_groups = (a->n_tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    uint64_t begin, end;
    k_pool_share(n_groups * n_tiles, piece, &begin, &end);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t group = unit / n_tiles, tile = unit % n_tiles;
        uint32_t first = (uint32_t)group * TILE_TOKENS, end_column;
        uint32_t column = tile_column(task, (uint32_t)tile, &end_column);
        uint32_t n = a->n_tokens - first < TILE_TOKENS ? a->n_tokens - first : TILE_TOKENS;
        uint32_t depth = end_column - column < TILE_DEPTH ? end_column - column : TILE_DEPTH;
        uint32_t *out = tile_group(task, group);
        bool as_floats = n <= max_float_tokens;
        for (uint32_t t = 0; t < (as_floats ? n : width); t++) {
            float padded[TILE_DEPTH] = {0};
            const float *x = a->x_dev + (uint64_t)(first + t) * n_cols + column;
            if (t >= n || depth < TILE_DEPTH) {
                if (t < n)
                    memcpy(padded, x, depth * sizeof *x);
                x = padded;
            }
            if (as_floats)
                tile_split_floats(x, n_terms, (float *)(void *)out + (tile * n + t) * n_terms * TILE_DEPTH);
            else
                tile_split_words(x, n_terms, width, out + tile * n_terms * TILE_PAIRS * width + t);
        }
    }
}

#endif
