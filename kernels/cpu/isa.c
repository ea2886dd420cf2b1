#include "kernels/cpu/isa.h"

#include "kernels/cpu/cpu.h"

const struct cpu_isa CPU_NAME(cpu_isa) = {
#if defined(__AVX512F__)
    .name = "avx512",
    .description = "the CPU, with AVX-512",
#else
    .name = "avx2",
    .description = "the CPU, with AVX2",
#endif
    .lane_pack = CPU_NAME(cpu_lane_pack),
    .gemm_lane = CPU_NAME(cpu_gemm_lane),
#if !defined(__AVX512F__)
    .lane_rows_pack = cpu_lane_rows_pack_avx2,
    .gemm_lane_rows = cpu_gemm_lane_rows_avx2,
#endif
    .tile_split = CPU_NAME(cpu_tile_split),
    .gemm_tile = CPU_NAME(cpu_gemm_tile),
    .quant_gather = CPU_NAME(cpu_quant_gather),
    .gemm_quant_lane = CPU_NAME(cpu_gemm_quant_lane),
    .quant_round = cpu_quant_round_avx2,
    .gemm_int8 = cpu_gemm_int8_avx2,
    .attention = {CPU_NAME(cpu_attn_item), CPU_NAME(cpu_attn_splits), CPU_NAME(cpu_attn_merge)},
};
