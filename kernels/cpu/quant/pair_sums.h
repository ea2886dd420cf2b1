/* The sums of products of pairs, in integers, of kernels/cpu/quant/pairs.h, which includes this header and describes
 * them. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_PAIR_SUMS_H
#define QUIRE_KERNELS_CPU_QUANT_PAIR_SUMS_H

/* How many pairs fit 16 bits, and the terms that a format adds. */
enum pairs_kind { ONE_PAIR, ONE_PAIR_LONG, EIGHT_PAIRS, EIGHT_PAIRS_LEAST, FOUR_PAIRS, FOUR_PAIRS_LEAST, TWO_PAIRS };
#define N_PAIRS_KINDS 7

CPU_INLINE enum pairs_kind pairs_kind_of(const enum k_packing packing, bool is_long)
{
    switch (packing) {
    case K_PACKING_PLANES: return is_long ? ONE_PAIR_LONG : ONE_PAIR;
    case K_PACKING_Q8_0:
    case K_PACKING_IQ4_NL:
    case K_PACKING_IQ4_XS: return ONE_PAIR;
    case K_PACKING_MXFP4:
    case K_PACKING_Q5_0: return FOUR_PAIRS;
    case K_PACKING_Q5_1:
    case K_PACKING_Q5_K: return FOUR_PAIRS_LEAST;
    case K_PACKING_Q6_K: return TWO_PAIRS;
    default: return has_least(packing) ? EIGHT_PAIRS_LEAST : EIGHT_PAIRS;
    }
}

/* Returns the same number and forces the compiler to compute it here. Otherwise it moves loads and products forward and
 * spills them, which took 1.4 times as long. */
CPU_INLINE ints settled(ints v)
{
    __asm__ volatile("" : "+x"(v));
    return v;
}

CPU_INLINE ints widened(ints pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Adds n steps, starting at s, to sums of pairs. */
CPU_INLINE void add_pairs(const struct row_block *p, uint32_t s, const uint32_t *u, const uint32_t T, const uint32_t n,
                          const bool begins, ints c[TOKENS][HALVES])
{
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        const ints q[HALVES] = {load_ints(p[0].words[s + i]), load_ints(p[1].words[s + i])};
#pragma GCC unroll 4
        for (uint32_t t = 0; t < T; t++) {
            const ints by = spread(u + i * T + t);
#pragma GCC unroll 2
            for (uint32_t h = 0; h < HALVES; h++) {
                const ints pairs = _mm256_maddubs_epi16(q[h], by);
                c[t][h] = settled(begins && i == 0 ? pairs : _mm256_add_epi16(c[t][h], pairs));
            }
        }
    }
}

/* Returns c plus those sums. */
CPU_INLINE void widen(ints pairs[TOKENS][HALVES], const uint32_t T, const bool begins, ints c[TOKENS][HALVES])
{
#pragma GCC unroll 4
    for (uint32_t t = 0; t < T; t++)
#pragma GCC unroll 2
        for (uint32_t h = 0; h < HALVES; h++)
            c[t][h] = begins ? widened(pairs[t][h]) : _mm256_add_epi32(c[t][h], widened(pairs[t][h]));
}

/* Adds four steps of signed q. */
CPU_INLINE void add_signed(const struct row_block *p, uint32_t s, const uint32_t *u, const uint32_t T,
                           const bool begins, ints c[TOKENS][HALVES])
{
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        const ints q[HALVES] = {load_ints(p[0].words[s + i]), load_ints(p[1].words[s + i])};
        const ints most[HALVES] = {_mm256_abs_epi8(q[0]), _mm256_abs_epi8(q[1])};
#pragma GCC unroll 4
        for (uint32_t t = 0; t < T; t++) {
            const ints by = spread(u + i * T + t);
#pragma GCC unroll 2
            for (uint32_t h = 0; h < HALVES; h++) {
                const ints sum = widened(_mm256_maddubs_epi16(most[h], _mm256_sign_epi8(by, q[h])));
                c[t][h] = settled(begins && i == 0 ? sum : _mm256_add_epi32(c[t][h], sum));
            }
        }
    }
}

/* Computes Σ n u, or Σ q u, of a run. */
CPU_INLINE void run_sums(const struct row_block *p, const struct cpu_quant_run *run, const uint32_t *u,
                         const uint32_t T, const enum pairs_kind kind, ints c[TOKENS][HALVES])
{
    ints pairs[TOKENS][HALVES];
    const uint32_t s = run->step;
    if (kind <= ONE_PAIR_LONG) {
        add_signed(p, s, u, T, true, c);
        for (uint32_t i = 4; i < run->n_steps; i += 4)
            add_signed(p, s + i, u + i * T, T, false, c);
    } else if (kind <= EIGHT_PAIRS_LEAST) {
        add_pairs(p, s, u, T, 4, true, pairs);
        if (run->n_steps > 4)
            add_pairs(p, s + 4, u + 4 * T, T, 4, false, pairs);
        widen(pairs, T, true, c);
    } else if (kind <= FOUR_PAIRS_LEAST) {
        add_pairs(p, s, u, T, 4, true, pairs);
        widen(pairs, T, true, c);
        if (run->n_steps > 4) {
            add_pairs(p, s + 4, u + 4 * T, T, 4, true, pairs);
            widen(pairs, T, false, c);
        }
    } else { /* groups of 16 columns */
        add_pairs(p, s, u, T, 2, true, pairs);
        widen(pairs, T, true, c);
        add_pairs(p, s + 2, u + 2 * T, T, 2, true, pairs);
        widen(pairs, T, false, c);
    }
}

#endif
