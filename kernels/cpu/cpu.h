/* kernels/cpu: docs/numerics.md at the speed of the machine, bit for bit what kernels/ref computes.
 *
 * One binary holds the arithmetic once for each instruction set; cpu_open() takes the best set that
 * the machine has, or the one that the environment variable QUIRE_ISA names. What is not worth an
 * instruction set of its own is ref's, plain loops that compilers vectorise for AVX2. On a Zen 4 core,
 * for a model of 0.5B parameters, one token takes 0.2 us in an RMSNorm, 0.2 us in RoPE with its KV
 * write and 2.3 us in SiLU-mul: with 24 layers 70 us, of 15,000 or more for a token decoded alone and
 * 3,600 for one of a chunk. Embedding and gather are copies, angles are made once a step, and sampling
 * takes 50 us for a greedy row of 152,000 logits, 340 us with top_k, top_p and logprobs.
 */
#ifndef QUIRE_KERNELS_CPU_H
#define QUIRE_KERNELS_CPU_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/lane_rows.h"
#include "kernels/cpu/panels.h"
#include "kernels/segments.h"

#if defined(__AVX512F__)
#include <immintrin.h>

/* clang 14 calls it so. */
#if defined(__AMX_INT8__) || defined(__AMXINT8__)
#define CPU_AMX_INT8
#endif
#endif

/* Columns of a quantized weight that share what they are multiplied by: of one group and one segment, in the form int8 also of one
 * piece of the activations; of at most 256 from a multiple of 256 on. */
struct cpu_quant_run {
    uint32_t column; /* the first one, a multiple of 16 */
    uint32_t scale; /* of the activations' */
    uint8_t step, n_steps; /* in its 256 columns, by four; n_steps is a multiple of 4 */
    uint8_t group; /* among those that have columns of the 256 */
    uint8_t segment;
    bool ends; /* else it goes on in the 256 that follow */
    bool is_rest; /* of one that began in the 256 before */
};
/* Words of the workspace for a token of so many columns, a multiple of 32. The runs lie behind those of all tokens. */
#define CPU_QUANT_INPUT_WORDS(columns) ((columns) / 4 + (columns) / 32 + K_SEGMENTS + (columns) / 16)
/* The packings whose elements are bytes; those of panels. */
#define CPU_QUANT_PACKINGS(_) _(PLANES) CPU_PANEL_PACKINGS(_)
#define CPU_PANEL_PACKINGS(_) _(Q8_0) _(Q4_0) _(Q4_1) _(Q5_0) _(Q5_1) _(Q2_K) _(Q3_K) _(Q4_K) _(Q5_K) _(Q6_K)

/* A GEMM's context on every thread. */
struct cpu_gemm {
    struct k_gemm_args args;
    uint32_t n_segments; /* K_SEGMENTS, of which some may be empty, or 1: nothing is to be added up */
    uint32_t column[K_SEGMENTS + 1]; /* segment i has columns [column[i], column[i + 1]) */
    /* tile form */
    uint32_t n_terms; /* of an activation */
    uint32_t tile[K_SEGMENTS + 1]; /* and so of tiles, one after the other */
    /* quantized weights: parts [first_part, last_part), which read the same rounded activations */
    uint32_t first_part, last_part;
    const struct cpu_quant_run *runs;
    uint32_t n_runs;
};

/* What an empty segment has for a sum: added, it leaves any number as it is. */
#define CPU_NO_TERM (-0.0f)

/* n sums of each segment, `stride` floats apart, added up in the first's place. */
static inline void cpu_sum_segments(float *s, uint64_t stride, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *at = s + i;
        s[i] = ((at[0] + at[stride]) + (at[2 * stride] + at[3 * stride])) +
               ((at[4 * stride] + at[5 * stride]) + (at[6 * stride] + at[7 * stride]));
    }
}

/* An output that no second-level cache holds is written past it: 16 rows of a token are a line, which else would be read
 * first. A GEMM of 512 tokens and 4864 or 896 rows of Q8_0 so takes 0.85 of the time. */
#define CPU_LARGE_OUTPUT_BYTES (1u << 20)

/* Segments added up, and each row's sum with its bias where it belongs: rows [row, row + n_rows) of a part, tokens [first, last).
 * sums is [segments][pass][rows], of which the first last - first and n_rows count. */
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
        _mm_sfence(); /* or a thread that is told of the end might not see them */
#endif
}

/* The arithmetic of one instruction set: functions for k_pool_run. */
struct cpu_isa {
    const char *name; /* as QUIRE_ISA has it */
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

/* What VNNI adds to AVX-512's. */
void cpu_quant_round_avx512vnni(void *context, struct k_piece piece);
void cpu_gemm_int8_avx512vnni(void *context, struct k_piece piece);

/* What AMX adds to AVX-512's. Whether this machine's tiles sum as docs/numerics.md §6 says, in the
 * cases where they might not: to be asked first, and the rest called only where they do. */
bool cpu_amx_is_exact(void);
void cpu_tile_split_amx(void *context, struct k_piece piece);
void cpu_gemm_tile_amx(void *context, struct k_piece piece);
void cpu_quant_round_amx(void *context, struct k_piece piece);
void cpu_gemm_int8_amx(void *context, struct k_piece piece);

struct cpu_backend {
    struct host_backend host;
    struct k_backend_ops ops; /* this backend's own table: its description names the set */
    struct cpu_isa isa;
};

static inline const struct cpu_isa *cpu_isa_of(struct k_backend *b)
{
    return &((struct cpu_backend *)b)->isa;
}

/* k_instruction_set_at() where the machine has the first of them. */
bool cpu_instruction_set(uint32_t i, struct k_instruction_set *out);

/* QUIRE_UNSUPPORTED when this machine lacks the instructions asked for. */
int cpu_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err);

#endif
