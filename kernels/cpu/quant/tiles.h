/* The products of kernels/cpu/gemm_quant.c with AMX's tiles; AMX's build includes this header there. It multiplies the
 * signed u of up to 16 tokens by the signed q of 16 rows, a run of columns at a time. Repacked rows have the layout of
 * the B operand, and the sums have rows in lanes, so that scales and the chain of groups use VNNI's code.
 *
 * A tile's sums are only available through memory, 52 cycles after the product was issued. So two runs are in progress
 * at a time, and the chains of 16 tokens stay in registers. For 16 tokens, 16 rows and 32 columns, a tile takes 24
 * loads of 64 bytes and 16 stores, and scales take 16 conversions, products and sums; VNNI alone takes 128 products. */
#ifndef QUIRE_KERNELS_CPU_QUANT_TILES_H
#define QUIRE_KERNELS_CPU_QUANT_TILES_H

#include "kernels/cpu/quant/tile_products.h"

/* Starts runs r and r + 1, if they exist. */
CPU_INLINE void begin_two(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t r, uint32_t last,
                          const struct inputs *in)
{
    if (r < last)
        begin_products(p, &runs[r], in, 0);
    if (r + 1 < last)
        begin_products(p, &runs[r + 1], in, 1);
}

/* Computes groups of 16 tokens, whose sums stay in registers. */
CPU_INLINE void runs_of_16(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                           const struct inputs *in, float (*y)[ROWS], const bool least)
{
    _Alignas(64) int32_t c[2][2][16][ROWS];
    floats sum[16];
#pragma GCC unroll 16
    for (uint32_t t = 0; t < 16; t++)
        sum[t] = _mm512_loadu_ps(y[t]);
    begin_two(p, runs, first, last, in);
    for (uint32_t r = first, at = 0; r < last + 2; r += 2, at ^= 1) {
        if (r < last) {
            amx_store(0, c[at][0], ROWS * 4);
            amx_store(1, c[at][1], ROWS * 4); /* not read after an odd last run */
            begin_two(p, runs, r + 2, last, in);
        }
        if (r == first)
            continue;
#pragma GCC unroll 16
        for (uint32_t t = 0; t < 16; t++)
            sum[t] = scaled(sum[t], p, &runs[r - 2], in, 16, t, c[at ^ 1][0][t], least);
        if (r - 1 >= last)
            break;
#pragma GCC unroll 16
        for (uint32_t t = 0; t < 16; t++)
            sum[t] = scaled(sum[t], p, &runs[r - 1], in, 16, t, c[at ^ 1][1][t], least);
    }
#pragma GCC unroll 16
    for (uint32_t t = 0; t < 16; t++)
        _mm512_storeu_ps(y[t], sum[t]);
}

/* Computes groups of fewer tokens. */
CPU_INLINE void runs_of_few(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                            const struct inputs *in, float (*y)[ROWS], const bool least)
{
    _Alignas(64) int32_t c[TOKENS][ROWS];
    for (uint32_t r = first; r < last; r++) {
        begin_products(p, &runs[r], in, 0);
        amx_store(0, c, ROWS * 4);
        for (uint32_t t = 0; t < in->T; t++)
            _mm512_storeu_ps(y[t], scaled(_mm512_loadu_ps(y[t]), p, &runs[r], in, in->T, t, c[t], least));
    }
}

/* Computes runs longer than a chunk. Their integers are carried from one chunk to the next. */
static void long_runs(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                      const struct inputs *in, float (*y)[ROWS], int32_t (*open)[ROWS])
{
    const uint64_t stride = (uint64_t)in->next_token * 4;
    for (uint32_t r = first; r < last; r++) {
        const struct cpu_quant_run *run = &runs[r];
        const uint32_t *u = in->u + run->column / 4, steps = run->n_steps;
        uint32_t s = 0;
        amx_load(0, open, ROWS * 4);
        for (; s + 16 <= steps; s += 16) {
            amx_load(6, u + s, stride);
            amx_load(7, p->words[run->step + s], ROWS * 4);
            amx_dpbssd(0, 6, 7);
        }
        if (s + 8 <= steps) {
            amx_load(2, u + s, stride);
            amx_load(3, p->words[run->step + s], ROWS * 4);
            amx_dpbssd(0, 2, 3);
            s += 8;
        }
        if (s < steps) {
            amx_load(4, u + s, stride);
            amx_load(5, p->words[run->step + s], ROWS * 4);
            amx_dpbssd(0, 4, 5);
        }
        amx_store(0, open, ROWS * 4);
        if (!run->ends)
            continue;
        for (uint32_t t = 0; t < in->T; t++)
            _mm512_storeu_ps(y[t], scaled(_mm512_loadu_ps(y[t]), p, run, in, in->T, t, open[t], false));
        memset(open, 0, in->T * sizeof open[0]);
    }
}

/* add_runs() with tiles. kind: 1 if the format has a least value, 2 if a run is longer than a chunk. tiles: the current
 * configuration, 0 for none. */
static void tile_runs(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                      const struct inputs *in, float (*y)[ROWS], int32_t (*open)[ROWS], uint32_t kind, uint32_t *tiles)
{
    if (*tiles != in->T) {
        configure_tiles(in->T, kind == 2);
        *tiles = in->T;
    }
    if (kind == 2)
        long_runs(p, runs, first, last, in, y, open);
    else if (in->T == 16 && kind == 1)
        runs_of_16(p, runs, first, last, in, y, true);
    else if (in->T == 16)
        runs_of_16(p, runs, first, last, in, y, false);
    else if (kind == 1)
        runs_of_few(p, runs, first, last, in, y, true);
    else
        runs_of_few(p, runs, first, last, in, y, false);
}

#endif
