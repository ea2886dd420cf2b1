/* kernels/cpu: docs/internals/numerics.md at the speed of the machine. Computes the same bits as kernels/ref. Calls
 * come from the engine's thread (backend.h).
 *
 * One binary contains the arithmetic once for each instruction set. cpu_open() selects the best set that the machine
 * has, or the set that the environment variable QUIRE_ISA names. Operations that do not justify an instruction set of
 * their own come from ref, as plain loops that compilers vectorize for AVX2. On a Zen 4 core, for a model of 0.5B
 * parameters, one token takes 0.2 us in an RMSNorm, 0.2 us in RoPE with its KV write, and 2.3 us in SiLU-mul. With 24
 * layers that is 70 us, of at least 15,000 us for a single decoded token and 3,600 us for a token of a chunk. Embedding
 * and gather are copies, angles are computed once per step, and sampling takes 50 us for a greedy row of 152,000
 * logits, and 340 us with top_k, top_p and logprobs. */
#ifndef QUIRE_KERNELS_CPU_CPU_H
#define QUIRE_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/host/host.h"
#include "kernels/open.h"
#include "kernels/pool.h"

#include <stdbool.h>
#include <stdint.h>

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
