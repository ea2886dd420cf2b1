/* How much memory the cuda backend takes: host arithmetic, linked into the main binary, so that `quire plan` needs no
 * GPU. Each formula stands beside the code that lays the memory out. Nothing depends on the GPU at hand. */
#ifndef QUIRE_KERNELS_CUDA_PLAN_H
#define QUIRE_KERNELS_CUDA_PLAN_H

#include "kernels/kernels.h"
#include "kernels/segments.h" /* K_SEGMENT_FN: what hosts and devices compute */

/* Elements of a token's row of factors in a GEMM's workspace. */
static inline uint32_t cuda_gemm_factor_stride(uint32_t n_cols)
{
    return (n_cols + 15) / 16 * 16;
}
/* What cuBLASLt may take for a GEMM: NVIDIA's own choice for sm_90, where 4 MiB do before. */
#define CUDA_CUBLASLT_WORKSPACE_BYTES (UINT64_C(32) << 20)
/* Sums of segments that wait for others, in gemm_large.cu: three sets of 192 x 128 for 160 blocks, which is more than an H200's
 * 132 SMs. Where there are more SMs, fewer blocks run. */
#define CUDA_GEMM_WAITING_BYTES (UINT64_C(45) << 20)
/* Tiles of gemm_large.cu that blocks may share the segments of: a counter each, 4 KiB that the backend takes when it opens. */
#define CUDA_GEMM_ARRIVALS 1024u
/* What a rank's peers reach of its memory (peers.cuh): flags and counts, and two areas for each block that meets others. */
#define CUDA_PEER_BLOCKS 64u
#define CUDA_PEER_AREA_BYTES (64u << 10)
#define CUDA_PEER_FLAG_BYTES (CUDA_PEER_BLOCKS * K_MAX_RANKS * 4)
#define CUDA_PEER_HEAD_BYTES 4096u
/* In whole pages of the driver: of what is smaller it would give peers its neighbours, too. */
#define CUDA_PEER_BYTES (UINT64_C(10) << 20)
uint64_t cuda_gemm_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_attention_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_attention_plan_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_workspace_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_plan_bytes(const struct k_plan_dims *dims);
uint64_t cuda_sample_parts_bytes(uint32_t n_vocab);
/* A token's activations in the form int8 (gemm_quant.cu): columns up to a multiple of 32, a byte each; their scales, one for
 * each 32 columns and one more wherever a segment ends within; the sums of each 16 columns. */
K_SEGMENT_FN uint32_t cuda_quant_columns(uint32_t n_cols)
{
    return (n_cols + 31) / 32 * 32;
}
K_SEGMENT_FN uint32_t cuda_quant_rounded_bytes(uint32_t n_cols)
{
    uint32_t n = cuda_quant_columns(n_cols);
    return n + (n / 32 + K_SEGMENTS) * 4 + n / 16 * 4;
}
/* Quantized rows on the device: bytes from one to the next, and the groups of a row. 4 bits are kept as such, else a byte an
 * element; of each group its scale and what belongs to it, 8 bytes. */
uint64_t cuda_quant_row_stride(struct k_format format, uint32_t n_cols);
uint32_t cuda_quant_groups(struct k_format format, uint32_t n_cols);
uint64_t cuda_weight_row_stride(struct k_format format, uint32_t n_cols);
/* Of a plain matrix with all its parts; of a quantized one of each part, which is an allocation. */
uint64_t cuda_weight_bytes(struct k_format format, uint32_t n_rows, uint32_t n_cols);

#endif
