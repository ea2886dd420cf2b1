/* The memory of the cuda backend. Host arithmetic, linked into the main binary, so that `quire plan` needs no GPU. The
 * formulas lie next to the code that uses the memory. No result depends on the machine's GPU. Any thread. */
#ifndef QUIRE_KERNELS_CUDA_PLAN_H
#define QUIRE_KERNELS_CUDA_PLAN_H

#include "kernels/format.h"
#include "kernels/group.h"
#include "kernels/planner.h"
#include "kernels/segments.h" /* K_SEGMENT_FN: for functions that hosts and devices compute */

/* Elements of a token's row of factors in a GEMM's workspace. */
static inline uint32_t cuda_gemm_factor_stride(uint32_t n_cols)
{
    return (n_cols + 15) / 16 * 16;
}
/* Maximum workspace of cuBLASLt for a GEMM: NVIDIA's own choice for sm_90; earlier GPUs need 4 MiB. */
#define CUDA_CUBLASLT_WORKSPACE_BYTES (UINT64_C(32) << 20)
/* Sums of segments that wait for others, in gemm_large.cu: three sets of 192 x 128 for 160 blocks, which is more than
 * an H200's 132 SMs. With more SMs, fewer blocks run. */
#define CUDA_GEMM_WAITING_BYTES (UINT64_C(45) << 20)
/* Number of gemm_large.cu's tiles whose segments blocks may share: one counter each, 4 KiB that the backend allocates
 * when it opens. */
#define CUDA_GEMM_ARRIVALS 1024u
/* The experts' GEMMs (moe/list.h): as CUDA_GEMM_WAITING_BYTES, three sets of 128 x 128 for 160 blocks; and the list, whose
 * choices have a tile each at most. */
#define CUDA_MOE_WAITING_BYTES (UINT64_C(30) << 20)
#define CUDA_MOE_LIST_HEAD_BYTES 256u
static inline uint64_t cuda_moe_list_bytes(uint64_t n_choices)
{
    return CUDA_MOE_LIST_HEAD_BYTES + (n_choices * 20 + 255) / 256 * 256;
}
/* The part of a rank's memory that its peers access (peers.cuh): flags and counts, and two areas for each exchanging
 * block. */
#define CUDA_PEER_BLOCKS 64u
#define CUDA_PEER_AREA_BYTES (64u << 10)
#define CUDA_PEER_FLAG_BYTES (CUDA_PEER_BLOCKS * K_MAX_RANKS * 4)
#define CUDA_PEER_HEAD_BYTES 4096u
/* In whole pages of the driver: with a smaller size, peers would also map adjacent allocations. */
#define CUDA_PEER_BYTES (UINT64_C(10) << 20)
uint64_t cuda_gemm_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_attention_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_attention_plan_bytes(const struct k_plan_dims *dims);
uint64_t cuda_moe_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_plan_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_parts_bytes(uint32_t n_vocab);
/* A token's activations in the int8 form (gemm_quant.cu): the columns, padded to a multiple of 32, one byte each; their
 * scales, one per 32 columns plus one for each segment end within them; the sums of each 16 columns. */
K_SEGMENT_FN uint32_t cuda_quant_columns(uint32_t n_cols)
{
    return (n_cols + 31) / 32 * 32;
}
K_SEGMENT_FN uint32_t cuda_quant_rounded_bytes(uint32_t n_cols)
{
    uint32_t n = cuda_quant_columns(n_cols);
    return n + (n / 32 + K_SEGMENTS) * 4 + n / 16 * 4;
}
/* Quantized rows on the device: the bytes from one row to the next, and the number of groups in a row. 4-bit elements
 * stay 4 bits; others take a byte. Each group has 8 bytes for its scale and its second number. */
uint64_t cuda_quant_row_stride(struct k_format format, uint32_t n_cols);
uint32_t cuda_quant_groups(struct k_format format, uint32_t n_cols);
uint64_t cuda_weight_row_stride(struct k_format format, uint32_t n_cols);
/* For plain matrices, all their parts together; for quantized ones, each part, which is a separate allocation. Experts'
 * matrices are one allocation. */
uint64_t cuda_weight_bytes(struct k_format format, uint32_t n_experts, uint32_t n_rows, uint32_t n_cols);

#endif
