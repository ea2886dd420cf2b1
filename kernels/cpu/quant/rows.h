/* Rows in lanes: the vector types of the int8 kernels, their activations, and what the formats add. ROWS rows are in a
 * register: all 16 rows of a block with AVX-512 VNNI, half of them with AVX2. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_ROWS_H
#define QUIRE_KERNELS_CPU_QUANT_ROWS_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/lanes.h"
#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>
#include <immintrin.h>

#if defined(__AVX512VNNI__)
#define ROWS 16u
#define HALVES 1u /* registers for the 16 rows of a block */
#if defined(CPU_AMX_INT8)
#define TOKENS 16u /* a tile's rows */
#define OFFSET 0 /* added to u */
#else
#define TOKENS 8u /* 8 sums of integers, 8 of floats */
#define OFFSET 128
#endif
typedef __m512i ints;
typedef __m512 floats;
#define OP(name) _mm512_##name
#define OP_SI(name) _mm512_##name##_si512
#else
#define ROWS 8u
#define HALVES 2u
#define TOKENS 4u
#define OFFSET 0
typedef __m256i ints;
typedef __m256 floats;
#define OP(name) _mm256_##name
#define OP_SI(name) _mm256_##name##_si256
#endif

CPU_INLINE ints load_ints(const void *p)
{
    return OP_SI(loadu)(p);
}
CPU_INLINE void store_ints(void *p, ints v)
{
    OP_SI(storeu)(p, v);
}
CPU_INLINE floats as_floats(ints v)
{
#if defined(__AVX512VNNI__)
    return _mm512_castsi512_ps(v);
#else
    return _mm256_castsi256_ps(v);
#endif
}
CPU_INLINE ints spread(const uint32_t *p)
{
    return OP(set1_epi32)((int)*p);
}

/* ---- activations ------------------------------------------------------------------------------------- */

/* A group of T tokens in the workspace: u of four columns [steps][T], for tiles [T][steps]; then scales [pieces][T];
 * then Σ u of 16 columns as a float [halves][T]. */
struct inputs {
    uint32_t *u;
    float *scale, *sum;
    uint32_t T;
    uint32_t next_step, next_token; /* words from one to the next */
};

CPU_INLINE uint64_t padded(const struct k_gemm_args *a)
{
    return ((uint64_t)a->weight->n_cols + 31) / 32 * 32;
}

CPU_INLINE struct inputs inputs_at(const struct cpu_gemm *g, uint32_t token)
{
    const uint64_t columns = padded(&g->args);
    const uint32_t left = g->args.n_tokens - token, T = left < TOKENS ? left : TOKENS;
    uint32_t *u = (uint32_t *)g->args.workspace_dev + token * CPU_QUANT_INPUT_WORDS(columns);
    float *scale = (float *)(u + T * columns / 4);
#if defined(CPU_AMX_INT8)
    const uint32_t next_step = 1, next_token = (uint32_t)columns / 4;
#else
    const uint32_t next_step = T, next_token = 1;
#endif
    return (struct inputs){u, scale, scale + T * (columns / 32 + K_SEGMENTS), T, next_step, next_token};
}

/* ---- formats ----------------------------------------------------------------------------------------- */

CPU_INLINE bool has_least(const enum k_packing packing)
{
    return packing == K_PACKING_Q4_1 || packing == K_PACKING_Q5_1 || packing == K_PACKING_Q2_K ||
           packing == K_PACKING_Q4_K || packing == K_PACKING_Q5_K;
}

/* Returns whether groups have 16 columns; otherwise 32. */
CPU_INLINE bool has_sixteens(const enum k_packing packing)
{
    return packing == K_PACKING_Q2_K || packing == K_PACKING_Q3_K || packing == K_PACKING_Q6_K;
}

/* Returns z: q is n - z, where n is unsigned and has up to 8 bits. */
CPU_INLINE int offset_of(const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0:
    case K_PACKING_IQ4_NL:
    case K_PACKING_IQ4_XS: return 128;
    case K_PACKING_MXFP4: return 12;
    case K_PACKING_Q4_0: return 8;
    case K_PACKING_Q5_0: return 16;
    case K_PACKING_Q6_K: return 32;
    case K_PACKING_Q3_K: return 4;
    default: return 0;
    }
}

/* Returns whether n has 8 bits. */
CPU_INLINE bool has_bytes(const enum k_packing packing)
{
    return offset_of(packing) == 128;
}

/* A row block is one stream, and the hardware prefetchers stop at the end of a page. For one token and 136 million
 * weights of Q4_0, two cores of a Sapphire Rapids read 21.2 GB/s without this, and 29.4 with it and large pages
 * (repacked.c); for Q8_0 24.0 and 27.9. Distances of 2 and 8 KiB, two or four row blocks at once and the first-level
 * cache are slower or the same. Those figures were measured with all of a chunk's lines prefetched at once. With
 * prefetches group by group, as now, a Zen 3 core takes 0.63 of the time for Q8_0, 0.84 for Q4_0 and 0.6 for Q6_K: a
 * core stalls when more than about twenty lines are in flight.
 */
#define AHEAD_BYTES 4096u
CPU_INLINE void fetch_ahead(const uint8_t *at, const uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + AHEAD_BYTES + i, _MM_HINT_T1);
}

#endif
