/* The products of one run with AMX's tiles, of kernels/cpu/quant/tiles.h, which includes this header and describes
 * them. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_TILE_PRODUCTS_H
#define QUIRE_KERNELS_CPU_QUANT_TILE_PRODUCTS_H

#include "kernels/cpu/amx.h"

/* Tiles 0 and 1: sums [token][row]. 2 and 3, 4 and 5: u [token] and q of 32 columns; 6 and 7: of 16. For long runs 4
 * and 5 have 16 columns, and 6 and 7 have 64. */
static void configure_tiles(uint32_t n_tokens, bool is_long)
{
    struct amx_config config = {.palette = 1};
    const uint32_t steps_of[] = {0, 8, is_long ? 4 : 8, is_long ? 16 : 4};
    for (uint32_t i = 0; i < 8; i += 2) {
        const uint32_t steps = steps_of[i / 2];
        config.rows[i] = (uint8_t)n_tokens;
        config.row_bytes[i] = (uint16_t)(i == 0 ? ROWS * 4 : steps * 4);
        config.rows[i + 1] = (uint8_t)(i == 0 ? n_tokens : steps);
        config.row_bytes[i + 1] = ROWS * 4;
    }
    amx_configure(&config);
}

/* Starts u q over a run's columns, at most 32, in the sums of one of two sets of tiles. */
CPU_INLINE void begin_products(const struct row_block *p, const struct cpu_quant_run *run, const struct inputs *in,
                               const uint32_t set)
{
    const uint64_t stride = (uint64_t)in->next_token * 4;
    const uint32_t *u = in->u + run->column / 4;
    const uint32_t(*q)[ROWS] = p->words + run->step;
    fetch_next(p, run);
    if (set == 0)
        amx_zero(0);
    else
        amx_zero(1);
    if (run->n_steps < 8) {
        amx_load(6, u, stride);
        amx_load(7, q, ROWS * 4);
        if (set == 0)
            amx_dpbssd(0, 6, 7);
        else
            amx_dpbssd(1, 6, 7);
    } else if (set == 0) {
        amx_load(2, u, stride);
        amx_load(3, q, ROWS * 4);
        amx_dpbssd(0, 2, 3);
    } else {
        amx_load(4, u, stride);
        amx_load(5, q, ROWS * 4);
        amx_dpbssd(1, 4, 5);
    }
}

/* Returns sum plus the term of a run's sums of token t. */
CPU_INLINE floats scaled(floats sum, const struct row_block *p, const struct cpu_quant_run *run,
                         const struct inputs *in, const uint32_t T, uint32_t t, const int32_t *c, const bool least)
{
    const floats d = _mm512_set1_ps(in->scale[run->scale * (uint64_t)T + t]);
    sum = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(p->scale[run->group]), d), _mm512_cvtepi32_ps(load_ints(c)),
                          sum);
    if (!least)
        return sum;
    const float *half = in->sum + (uint64_t)run->column / 16 * T + t;
    const float inputs = run->n_steps > 4 ? half[0] + half[T] : half[0];
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(p->least[run->group]), d), _mm512_set1_ps(inputs), sum);
}

#endif
