/* The tables of kernels. Like cpu.c it is compiled for the oldest machine of the architecture. */
#include "kernels/cpu/kernels.h"

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lane_rows.h"

/* ---- GEMM ---- */

static bool takes_plain(const struct k_kernel *kernel, const void *call)
{
    (void)kernel;
    return ((const struct cpu_gemm_call *)call)->is_plain;
}

static bool takes_plain_of_many_tokens(const struct k_kernel *kernel, const void *call)
{
    return takes_plain(kernel, call) && ((const struct cpu_gemm_call *)call)->n_tokens >= CPU_LANE_ROWS_TOKENS;
}

static bool takes_fast(const struct k_kernel *kernel, const void *call)
{
    (void)kernel;
    return ((const struct cpu_gemm_call *)call)->is_fast;
}

static bool takes_quantized(const struct k_kernel *kernel, const void *call)
{
    return !takes_plain(kernel, call);
}

#define LANE K_FORM_BIT(K_FORM_LANE)
#define INT8 K_FORM_BIT(K_FORM_INT8)
#define TILE (K_FORM_BIT(K_FORM_TILE) | K_FORM_BIT(K_FORM_TILE_BF16))
/* Name, forms, architecture, variant, takes, clocks; prepare, multiply, one_token_as_is. AVX-512 has no kernel of int8
 * products: without VNNI, 256 bits are as fast. */
static const struct cpu_gemm_kernel gemm_rows[] = {
    {{"lane avx512", LANE | INT8, CPU_AVX512, 0, takes_plain, NULL}, cpu_lane_pack_avx512, cpu_gemm_lane_avx512, true},
    {{"lane rows avx2", LANE | INT8, CPU_AVX2, 0, takes_plain_of_many_tokens, NULL},
     cpu_lane_rows_pack_avx2,
     cpu_gemm_lane_rows_avx2,
     false},
    {{"lane avx2", LANE | INT8, CPU_AVX2, 0, takes_plain, NULL}, cpu_lane_pack_avx2, cpu_gemm_lane_avx2, true},
    {{"tile amx", TILE, CPU_AMX, 0, takes_plain, NULL}, cpu_tile_split_amx, cpu_gemm_tile_amx, false},
    {{"tile avx512", TILE, CPU_AVX512, 0, takes_plain, NULL}, cpu_tile_split_avx512, cpu_gemm_tile_avx512, false},
    {{"tile avx2", TILE, CPU_AVX2, 0, takes_plain, NULL}, cpu_tile_split_avx2, cpu_gemm_tile_avx2, false},
    {{"int8 amx", INT8, CPU_AMX, 0, takes_fast, NULL}, cpu_quant_round_amx, cpu_gemm_int8_amx, false},
    {{"int8 avx512vnni", INT8, CPU_AVX512VNNI, 0, takes_fast, NULL},
     cpu_quant_round_avx512vnni,
     cpu_gemm_int8_avx512vnni,
     false},
    {{"int8 avx2", INT8, CPU_AVX2, 0, takes_fast, NULL}, cpu_quant_round_avx2, cpu_gemm_int8_avx2, false},
    {{"quantized lane avx512", LANE, CPU_AVX512, 0, takes_fast, NULL},
     cpu_quant_gather_avx512,
     cpu_gemm_quant_lane_avx512,
     false},
    {{"quantized lane avx2", LANE, CPU_AVX2, 0, takes_fast, NULL},
     cpu_quant_gather_avx2,
     cpu_gemm_quant_lane_avx2,
     false},
    {{"quantized ref", LANE | INT8, 0, 0, takes_quantized, NULL}, NULL, NULL, false},
};
const struct k_kernel_table cpu_gemm_kernels = K_KERNEL_TABLE(gemm_rows);

/* ---- attention, which has one form on a CPU ---- */

static bool takes_all(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return true;
}

#define ALL_FORMS ((1u << K_N_FORMS) - 1)
static const struct cpu_attention_kernel attention_rows[] = {
    {{"attention avx512", ALL_FORMS, CPU_AVX512, 0, takes_all, NULL},
     {cpu_attn_item_avx512, cpu_attn_splits_avx512, cpu_attn_merge_avx512}},
    {{"attention avx2", ALL_FORMS, CPU_AVX2, 0, takes_all, NULL},
     {cpu_attn_item_avx2, cpu_attn_splits_avx2, cpu_attn_merge_avx2}},
};
const struct k_kernel_table cpu_attention_kernels = K_KERNEL_TABLE(attention_rows);

const struct k_kernel *cpu_kernel_at(enum k_operation operation, uint32_t i)
{
    if (operation == K_OP_GEMM || operation == K_OP_GEMM_GATED || operation == K_OP_MOE_GEMM ||
        operation == K_OP_MOE_GEMM_GATED)
        return k_kernel_at(&cpu_gemm_kernels, i);
    return operation == K_OP_ATTENTION ? k_kernel_at(&cpu_attention_kernels, i) : NULL;
}
