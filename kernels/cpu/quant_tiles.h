/* The products of kernels/cpu/gemm_quant.c by AMX's tiles, which includes this in AMX's build and where it has them: the unsigned u
 * of up to 16 tokens by the signed q of a panel's 16 rows, the columns of a run at a time. A panel's words lie as the B operand
 * is to lie, and the sums come out with the rows in lanes, so that scales and the chain of groups are VNNI's.
 *
 * By count, of 16 tokens, 16 rows and 32 columns: VNNI 128 instructions of 64 products, a tile one, and 64 for scales in both.
 */
#ifndef QUIRE_KERNELS_CPU_QUANT_TILES_H
#define QUIRE_KERNELS_CPU_QUANT_TILES_H

#include "kernels/cpu/amx.h"

/* Tile 0: sums [token][row]; 1 and 2, 3 and 4, 5 and 6: u [token] and q of 64, 32 and 16 columns. */
static void configure_tiles(uint32_t n_tokens)
{
    struct amx_config config = {.palette = 1};
    config.rows[0] = (uint8_t)n_tokens;
    config.row_bytes[0] = ROWS * 4;
    for (uint32_t i = 0; i < 3; i++) {
        config.rows[1 + 2 * i] = (uint8_t)n_tokens;
        config.row_bytes[1 + 2 * i] = (uint16_t)(64 >> i);
        config.rows[2 + 2 * i] = (uint8_t)(16 >> i);
        config.row_bytes[2 + 2 * i] = ROWS * 4;
    }
    amx_configure(&config);
}

/* out = begin + u q over a run's columns; begin: of a token, so many bytes from the next one's. */
CPU_INLINE void tile_products(const struct panel *p, const struct cpu_quant_run *run, const struct inputs *in,
                              const void *begin, uint64_t next, int32_t (*out)[ROWS])
{
    const uint64_t stride = (uint64_t)in->next_token * 4;
    const uint32_t *u = in->u + run->column / 4;
    uint32_t s = run->step, left = run->n_steps;
    amx_load(0, begin, next);
    for (; left >= 16; left -= 16, s += 16, u += 16) {
        amx_load(1, u, stride);
        amx_load(2, p->words[s], ROWS * 4);
        amx_dpbusd(0, 1, 2);
    }
    if (left >= 8) {
        amx_load(3, u, stride);
        amx_load(4, p->words[s], ROWS * 4);
        amx_dpbusd(0, 3, 4);
        left -= 8, s += 8, u += 8;
    }
    if (left >= 4) {
        amx_load(5, u, stride);
        amx_load(6, p->words[s], ROWS * 4);
        amx_dpbusd(0, 5, 6);
    }
    amx_store(0, out, ROWS * 4);
}

/* What a run's sums add to y. */
CPU_INLINE void tile_scale(const struct panel *p, const struct cpu_quant_run *run, const struct inputs *in,
                           const int32_t (*c)[ROWS], float (*y)[ROWS], const bool least)
{
    const float *d = in->scale + (uint64_t)run->scale * in->T, *half = in->sum + (uint64_t)run->column / 16 * in->T;
    const floats scale = _mm512_loadu_ps(p->scale[run->group]);
    const floats by = least ? _mm512_loadu_ps(p->least[run->group]) : scale;
    for (uint32_t t = 0; t < in->T; t++) {
        const floats each = _mm512_set1_ps(d[t]);
        floats sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, each), _mm512_cvtepi32_ps(load_ints(c[t])),
                                     _mm512_loadu_ps(y[t]));
        if (least) {
            const float inputs = run->n_steps > 4 ? half[t] + half[in->T + t] : half[t];
            sum = _mm512_fmadd_ps(_mm512_mul_ps(by, each), _mm512_set1_ps(inputs), sum);
        }
        _mm512_storeu_ps(y[t], sum);
    }
}

/* add_runs() by tiles, which are configured for as many tokens. kind: 1 where the format has a least value, 2 where a run is
 * longer than a chunk. */
static void tile_runs(const struct panel *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                      const struct inputs *in, float (*y)[ROWS], int32_t (*open)[ROWS], uint32_t kind)
{
    int32_t c[TOKENS][ROWS];
    configure_tiles(in->T);
    for (uint32_t r = first; r < last; r++) {
        const struct cpu_quant_run *run = &runs[r];
        if (kind != 2) {
            tile_products(p, run, in, p->begin[r], 0, c);
            if (kind == 1)
                tile_scale(p, run, in, c, y, true);
            else
                tile_scale(p, run, in, c, y, false);
            continue;
        }
        for (uint32_t t = 0; t < in->T; t++)
            store_ints(open[t], _mm512_add_epi32(load_ints(open[t]), load_ints(p->begin[r])));
        tile_products(p, run, in, open, ROWS * 4, open);
        if (!run->ends)
            continue;
        tile_scale(p, run, in, open, y, false);
        memset(open, 0, in->T * sizeof open[0]);
    }
}

#endif
