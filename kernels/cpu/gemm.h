/* What the files of the cpu backend's GEMMs share: the context of a GEMM on every thread, and how its sums become
 * outputs. Built once for each instruction set (kernels/CMakeLists.txt). Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_GEMM_H
#define QUIRE_KERNELS_CPU_GEMM_H

#include "kernels/args/gemm.h"
#include "kernels/cpu/repacked.h"
#include "kernels/host/host.h"
#include "kernels/segments.h"

#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>

/* clang 14's name for it. */
#if defined(__AMX_INT8__) || defined(__AMXINT8__)
#define CPU_AMX_INT8
#endif
#endif

/* Columns of a quantized weight that share their factors: of one group and one segment and, in the int8 form, of one
 * piece of the activations; at most 256, from a multiple of 256 on. */
struct cpu_quant_run {
    uint32_t column; /* the first column, a multiple of 16 */
    uint32_t scale; /* index of the activations' scale */
    uint8_t step, n_steps; /* within its 256 columns, in units of four; n_steps is a multiple of 4 */
    uint8_t group; /* index among the groups with columns in the 256 */
    uint8_t segment;
    bool ends; /* otherwise it continues in the next 256 columns */
    bool is_rest; /* continues a run of the previous 256 columns */
};
/* Words of the workspace for a token of this many columns, a multiple of 32. The runs follow after all tokens'
 * words. */
#define CPU_QUANT_INPUT_WORDS(columns) ((columns) / 4 + (columns) / 32 + K_SEGMENTS + (columns) / 16)
/* The packings whose elements are bytes, and those that are repacked. */
#define CPU_QUANT_PACKINGS(_) _(PLANES) CPU_REPACKED_PACKINGS(_)
#define CPU_REPACKED_PACKINGS(_) \
    _(Q8_0) _(Q4_0) _(Q4_1) _(Q5_0) _(Q5_1) _(MXFP4) _(IQ4_NL) _(Q2_K) _(Q3_K) _(Q4_K) _(Q5_K) _(Q6_K) _(IQ4_XS)

/* A GEMM's context on every thread. */
struct cpu_gemm {
    struct k_gemm_args args;
    uint32_t n_segments; /* K_SEGMENTS, of which some may be empty, or 1: nothing to add */
    uint32_t column[K_SEGMENTS + 1]; /* segment i has columns [column[i], column[i + 1]) */
    /* tile form */
    uint32_t n_terms; /* per activation */
    uint32_t tile[K_SEGMENTS + 1]; /* and tiles [tile[i], tile[i + 1]) */
    /* quantized weights: parts [first_part, last_part), which read the same rounded activations */
    uint32_t first_part, last_part;
    const struct cpu_quant_run *runs;
    uint32_t n_runs;
};

/* The sum of an empty segment: adding it changes no number. */
#define CPU_NO_TERM (-0.0f)

/* Adds n sums of each segment, `stride` floats apart, into those of the first segment. */
static inline void cpu_sum_segments(float *s, uint64_t stride, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *at = s + i;
        s[i] = ((at[0] + at[stride]) + (at[2 * stride] + at[3 * stride])) +
               ((at[4 * stride] + at[5 * stride]) + (at[6 * stride] + at[7 * stride]));
    }
}

/* A larger output than a second-level cache holds is written past the caches: 16 rows of a token are a line, which
 * would otherwise be read first. A GEMM of 512 tokens and 4864 or 896 rows of Q8_0 then takes 0.85 of the time. */
#define CPU_LARGE_OUTPUT_BYTES (1u << 20)

/* Adds the segments and stores each row's sum, plus its bias, at its position: rows [row, row + n_rows) of a part,
 * tokens [first, last). sums is [segments][pass][rows], of which the first last - first and n_rows count. */
static inline void cpu_put_sums(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t n_rows,
                                uint32_t first, uint32_t last, float *sums, const uint32_t pass, const uint32_t rows)
{
    const struct k_gemm_args *a = &g->args;
    const uint64_t stride = (uint64_t)pass * rows;
    for (uint32_t i = 0; i < g->n_segments && g->n_segments > 1; i++)
        for (uint32_t j = 0; g->column[i] == g->column[i + 1] && j < (last - first) * rows; j++)
            sums[i * stride + j] = CPU_NO_TERM;
    const float *bias = a->bias_dev ? a->bias_dev + part->first_row + row : NULL;
#if defined(__AVX512F__)
    const bool past_caches = (uint64_t)a->n_tokens * a->weight->n_rows * sizeof(float) >= CPU_LARGE_OUTPUT_BYTES;
#endif
    for (uint32_t t = first; t < last; t++) {
        float *s = sums + (uint64_t)(t - first) * rows;
        float *y = a->y_dev + t * (uint64_t)a->weight->n_rows + part->first_row + row;
        if (g->n_segments > 1)
            cpu_sum_segments(s, stride, rows);
#if defined(__AVX512F__)
        if (past_caches && n_rows == 16 && (uintptr_t)y % 64 == 0) {
            const __m512 sum = _mm512_loadu_ps(s);
            _mm512_stream_ps(y, bias ? _mm512_add_ps(sum, _mm512_loadu_ps(bias)) : sum);
            continue;
        }
#endif
        for (uint32_t j = 0; j < n_rows; j++)
            y[j] = bias ? s[j] + bias[j] : s[j];
    }
#if defined(__AVX512F__)
    if (past_caches)
        _mm_sfence(); /* without it, a thread that receives the end of the task might not see the stores */
#endif
}

#endif
