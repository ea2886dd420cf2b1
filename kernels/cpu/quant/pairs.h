/* The products of kernels/cpu/gemm_quant.c in AVX2, which includes this header: 16 rows, in two registers, by up to
 * four tokens, so that eight sums are in progress and four columns' u, broadcast once over a register, serve both
 * registers.
 *
 * maddubs multiplies unsigned bytes by signed ones and adds pairs in 16 bits, which saturate. If a format's n = q + z
 * have few bits, more than one pair fits. With n up to 15, the sum of eight pairs is at most 8 · 2 · 15 · 127 < 2^15,
 * so the 32 columns of a group are added in 16 bits and widened once. With n up to 31 four pairs fit, up to 63 two. Σ q
 * u = Σ n u - z Σ u; both are less than 2^24 and exact as floats. With eight bits only one pair fits: |q| is multiplied
 * by u with q's sign, a pair is at most 128 · 127 · 2 < 2^15, and each is widened. On a Zen 3 core the first method
 * takes 0.6 of the second's time. 16-bit factors, and q as two halves of 4 bits, take as long as the second. */
#ifndef QUIRE_KERNELS_CPU_QUANT_PAIRS_H
#define QUIRE_KERNELS_CPU_QUANT_PAIRS_H

#include "kernels/cpu/quant/pair_sums.h"

/* Adds a run's sums to y. */
CPU_INLINE void add_scaled(const struct row_block *p, const struct cpu_quant_run *run, const struct inputs *in,
                           const uint32_t T, const enum pairs_kind kind, float z, ints c[TOKENS][HALVES],
                           float (*y)[CPU_REPACKED_ROWS])
{
    const bool least = kind == EIGHT_PAIRS_LEAST || kind == FOUR_PAIRS_LEAST;
    const float *half = in->sum + (uint64_t)run->column / 16 * T;
    const uint32_t other = run->n_steps > 4 ? T : 0;
#pragma GCC unroll 4
    for (uint32_t t = 0; t < T; t++) {
        const floats d = _mm256_set1_ps(in->scale[(uint64_t)run->scale * T + t]);
        floats sum = _mm256_set1_ps(half[t]);
        if (kind > ONE_PAIR_LONG && kind != TWO_PAIRS && other)
            sum = _mm256_add_ps(sum, _mm256_set1_ps(half[T + t]));
#pragma GCC unroll 2
        for (uint32_t h = 0; h < HALVES; h++) {
            floats f = _mm256_cvtepi32_ps(c[t][h]);
            if (kind > ONE_PAIR_LONG && !least)
                f = _mm256_fnmadd_ps(_mm256_set1_ps(z), sum, f);
            floats all = _mm256_loadu_ps(y[t] + h * ROWS);
            all = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(p[h].scale[run->group]), d), f, all);
            if (least)
                all = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(p[h].least[run->group]), d), sum, all);
            _mm256_storeu_ps(y[t] + h * ROWS, all);
        }
    }
}

/* Computes runs of a chunk within one segment for the T tokens of a group. */
CPU_INLINE void add_runs(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                         const struct inputs *in, float (*y)[CPU_REPACKED_ROWS], int32_t (*open)[CPU_REPACKED_ROWS],
                         const uint32_t T, const enum pairs_kind kind, float z)
{
    for (uint32_t r = first; r < last; r++) {
        const struct cpu_quant_run *run = &runs[r];
        ints c[TOKENS][HALVES];
        fetch_next(p, run);
        run_sums(p, run, in->u + (uint64_t)run->column / 4 * T, T, kind, c);
        for (uint32_t t = 0; t < T && kind == ONE_PAIR_LONG; t++)
            for (uint32_t h = 0; h < HALVES; h++) {
                int32_t *at = open[t] + h * ROWS;
                c[t][h] = _mm256_add_epi32(c[t][h], load_ints(at));
                store_ints(at, run->ends ? _mm256_setzero_si256() : c[t][h]);
            }
        if (kind != ONE_PAIR_LONG || run->ends)
            add_scaled(p, run, in, T, kind, z, c, y);
    }
}

/* One copy of the loops for each number of tokens and kind. */
typedef void (*runs_fn)(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                        const struct inputs *in, float (*y)[CPU_REPACKED_ROWS], int32_t (*open)[CPU_REPACKED_ROWS],
                        float z);
#define RUNS(T, kind) \
    static void runs_##T##_##kind(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, \
                                  uint32_t last, const struct inputs *in, float(*y)[CPU_REPACKED_ROWS], \
                                  int32_t(*open)[CPU_REPACKED_ROWS], float z) \
    { \
        add_runs(p, runs, first, last, in, y, open, T, kind, z); \
    }
#define KINDS(_, T) \
    _(T, ONE_PAIR) \
    _(T, ONE_PAIR_LONG) \
    _(T, EIGHT_PAIRS) \
    _(T, EIGHT_PAIRS_LEAST) \
    _(T, FOUR_PAIRS) \
    _(T, FOUR_PAIRS_LEAST) \
    _(T, TWO_PAIRS)
KINDS(RUNS, 1)
KINDS(RUNS, 2)
KINDS(RUNS, 3)
KINDS(RUNS, 4)
#define RUNS_ENTRY(T, kind) [T][kind] = runs_##T##_##kind,
static const runs_fn runs_fns[TOKENS + 1][N_PAIRS_KINDS] = {KINDS(RUNS_ENTRY, 1) KINDS(RUNS_ENTRY, 2)
                                                                KINDS(RUNS_ENTRY, 3) KINDS(RUNS_ENTRY, 4)};

#endif
