/* Declares the functions of each instruction set, for the files that are built once for each set, and for the tables of
 * kernels.c. CPU_NAME gives a function the name of the set that is being built. */
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

/* The functions of a set. Not every set has all: the tables of kernels.c say which. The tasks are for k_pool_run, with a
 * struct cpu_gemm; each kernel has one that writes the activations into the workspace first. */
#define CPU_FUNCTIONS(set) \
    void cpu_lane_pack_##set(void *context, struct k_piece piece); \
    void cpu_gemm_lane_##set(void *context, struct k_piece piece); \
    void cpu_lane_rows_pack_##set(void *context, struct k_piece piece); \
    void cpu_gemm_lane_rows_##set(void *context, struct k_piece piece); \
    void cpu_tile_split_##set(void *context, struct k_piece piece); \
    void cpu_gemm_tile_##set(void *context, struct k_piece piece); \
    void cpu_quant_round_##set(void *context, struct k_piece piece); \
    void cpu_gemm_int8_##set(void *context, struct k_piece piece); \
    void cpu_quant_gather_##set(void *context, struct k_piece piece); \
    void cpu_gemm_quant_lane_##set(void *context, struct k_piece piece); \
    /* cpu_gemm_int8 of one token and rows [begin, end) of a part with repacked rows. Returns false, without doing \
     * anything, if segments divide its groups. */ \
    bool cpu_gemm_int8_one_##set(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, \
                                 uint32_t end); \
    /* struct cpu_attn_functions */ \
    void cpu_attn_item_##set(const struct k_attention_args *a, const struct cpu_attn_item *item, float *scratch); \
    void cpu_attn_splits_##set(const struct k_attention_args *a, const struct cpu_attn_item *item, uint32_t begin, \
                               uint32_t end, float *partials, float *scratch); \
    void cpu_attn_merge_##set(const struct k_attention_args *a, const struct cpu_attn_item *item, float *partials);
CPU_FUNCTIONS(avx2)
CPU_FUNCTIONS(avx512)
CPU_FUNCTIONS(avx512vnni)
CPU_FUNCTIONS(amx)

#endif
