/* Declares the functions of one instruction set, for the files that are built once for each set. CPU_NAME gives each
 * function a name per set. */
#ifndef QUIRE_KERNELS_CPU_ISA_H
#define QUIRE_KERNELS_CPU_ISA_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"

#if defined(CPU_AMX_INT8)
#define CPU_NAME(name) name##_amx
#elif defined(__AVX512VNNI__)
#define CPU_NAME(name) name##_avx512vnni
#elif defined(__AVX512F__)
#define CPU_NAME(name) name##_avx512
#else
#define CPU_NAME(name) name##_avx2
#endif

void CPU_NAME(cpu_lane_pack)(void *context, struct k_piece piece);
void CPU_NAME(cpu_gemm_lane)(void *context, struct k_piece piece);
/* For many tokens; only AVX2 has them. */
void cpu_lane_rows_pack_avx2(void *context, struct k_piece piece);
void cpu_gemm_lane_rows_avx2(void *context, struct k_piece piece);
void CPU_NAME(cpu_quant_gather)(void *context, struct k_piece piece);
void CPU_NAME(cpu_gemm_quant_lane)(void *context, struct k_piece piece);
void CPU_NAME(cpu_tile_split)(void *context, struct k_piece piece);
void CPU_NAME(cpu_gemm_tile)(void *context, struct k_piece piece);

/* AVX-512 uses AVX2's: without VNNI, 256 bits are as fast. */
void cpu_quant_round_avx2(void *context, struct k_piece piece);
void cpu_gemm_int8_avx2(void *context, struct k_piece piece);

/* cpu_gemm_int8 of one token and rows [begin, end) of a part with repacked rows. Returns false, without doing anything,
 * if segments divide its groups. */
bool CPU_NAME(cpu_gemm_int8_one)(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end);

/* struct cpu_attn_functions */
void CPU_NAME(cpu_attn_item)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *scratch);
void CPU_NAME(cpu_attn_splits)(const struct k_attention_args *a, const struct cpu_attn_item *item, uint32_t begin,
                               uint32_t end, float *partials, float *scratch);
void CPU_NAME(cpu_attn_merge)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *partials);

#endif
