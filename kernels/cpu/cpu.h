/* kernels/cpu: docs/internals/numerics.md at the speed of the machine. Computes the same bits as kernels/ref. Calls
 * come from the engine's thread (backend.h).
 *
 * One binary contains the arithmetic once for each instruction set. cpu_open() selects the best set that the machine
 * has, or the set that the environment variable QUIRE_ISA names. Operations that do not justify an instruction set of
 * their own come from ref, as plain loops that compilers vectorize for AVX2. On a Zen 4 core, for a model of 0.5B
 * parameters, one token takes 0.2 us in an RMSNorm, 0.2 us in RoPE with its KV write, and 2.3 us in SiLU-mul. With 24
 * layers that is 70 us, of at least 15,000 us for a single decoded token and 3,600 us for a token of a chunk. Embedding
 * and gather are copies, angles are computed once per step, and sampling takes 50 us for a greedy row of 152,000
 * logits, and 340 us with top_k, top_p and logprobs.
 */
#ifndef QUIRE_KERNELS_CPU_H
#define QUIRE_KERNELS_CPU_H

#include "kernels/args/gemm.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/lane_rows.h"
#include "kernels/cpu/panels.h"
#include "kernels/segments.h"

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
#define CPU_QUANT_PACKINGS(_) _(PLANES) CPU_PANEL_PACKINGS(_)
#define CPU_PANEL_PACKINGS(_) _(Q8_0) _(Q4_0) _(Q4_1) _(Q5_0) _(Q5_1) _(Q2_K) _(Q3_K) _(Q4_K) _(Q5_K) _(Q6_K)

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

/* The arithmetic of one instruction set: functions for k_pool_run. */
struct cpu_isa {
    const char *name; /* as in QUIRE_ISA */
    const char *description; /* one line for people */
    k_pool_fn lane_pack; /* struct cpu_gemm: activations of two tokens or more into the workspace, before gemm_lane */
    k_pool_fn gemm_lane; /* struct cpu_gemm */
    k_pool_fn lane_rows_pack, gemm_lane_rows; /* likewise, for CPU_LANE_ROWS_TOKENS or more; or NULL */
    k_pool_fn tile_split; /* struct cpu_gemm: activations into the workspace, before gemm_tile */
    k_pool_fn gemm_tile; /* struct cpu_gemm */
    k_pool_fn quant_round; /* struct cpu_gemm: activations as int8 into the workspace, before gemm_int8 */
    k_pool_fn gemm_int8; /* struct cpu_gemm */
    k_pool_fn quant_gather; /* struct cpu_gemm: activations into the workspace, before gemm_quant_lane */
    k_pool_fn gemm_quant_lane; /* struct cpu_gemm */
    struct cpu_attn_functions attention;
};
#define CPU_MAX_ISAS 4

extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx512;

/* The functions that VNNI adds to the AVX-512 set. */
void cpu_quant_round_avx512vnni(void *context, struct k_piece piece);
void cpu_gemm_int8_avx512vnni(void *context, struct k_piece piece);

/* The functions that AMX adds to the AVX-512 set. cpu_amx_is_exact() returns whether this machine's tiles sum as
 * docs/internals/numerics.md §6 specifies, in the cases where they might not. Call it first, and the others only if it
 * returns true. */
bool cpu_amx_is_exact(void);
void cpu_tile_split_amx(void *context, struct k_piece piece);
void cpu_gemm_tile_amx(void *context, struct k_piece piece);
void cpu_quant_round_amx(void *context, struct k_piece piece);
void cpu_gemm_int8_amx(void *context, struct k_piece piece);

struct cpu_backend {
    struct host_backend host;
    struct k_backend_ops ops; /* the table of this backend: its description names the set */
    struct cpu_isa isa;
};

static inline const struct cpu_isa *cpu_isa_of(struct k_backend *b)
{
    return &((struct cpu_backend *)b)->isa;
}

/* The implementation of k_instruction_set_at() for a machine that has the first set. */
bool cpu_instruction_set(uint32_t i, struct k_instruction_set *out);

/* Returns QUIRE_UNSUPPORTED if this machine lacks the requested instructions. */
int cpu_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err);

#endif
