/* Attention, mma form, for a step in which no query tile has more than sixteen rows: decode, and heads wider than 128.
 *
 * attention_mma.cu documents the arithmetic. This is a separate kernel because streaming K and V needs many bytes in
 * flight and instructions from many warps. Without large query tiles it fits 168 registers, so an SM holds three
 * blocks: 12 warps, and 3 × 48 KB of K and V in flight (128 wide: two tiles are 64 KB, of which a quarter is being
 * read). 3.35 TB/s × 1 µs / 132 SMs need 25 KB, and an H200 needs 36 KB. A block has 71 KB of shared memory; three fit
 * the 228 KB of an H100. GPUs with 164 KB hold two, those with 100 KB one. Heads wider than 128 need more registers:
 * two blocks.
 */
#include "kernels/cuda/attention_small.cuh"
#include "kernels/cuda/launch.h"

template <uint32_t D, bool is_capped, bool has_sinks> struct small_only {
    static __device__ __forceinline__ bool run(const struct attention_mma &a, const struct attn_unit &unit)
    {
        return run_small<D, is_capped, has_sinks>(a, unit);
    }
};

template <uint32_t D, bool is_capped>
static __global__ void __launch_bounds__(ATTN_THREADS, ATTN_SMALL_PER_SM(D))
    attention_decode_kernel(const struct attention_mma a)
{
    run_units<small_only<D, is_capped, false>>(a);
}

template <uint32_t D, bool is_capped>
static __global__ void __launch_bounds__(ATTN_THREADS, ATTN_SMALL_PER_SM(D))
    attention_decode_sinks_kernel(const struct attention_mma a)
{
    run_units<small_only<D, is_capped, true>>(a);
}

/* The widths of attention_mma.cu, and 256. */
template <uint32_t D, bool is_capped>
static cudaError_t launch(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    static_assert(small_layout<D>::bytes <= 99 * 1024, "what a block has on every GPU from sm_80 on");
    const uint32_t bytes = small_layout<D>::bytes;
    cudaError_t error = cudaFuncSetAttribute((const void *)attention_decode_kernel<D, is_capped>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = K_LAUNCH((attention_decode_kernel<D, is_capped>), n_blocks, ATTN_THREADS, bytes, stream, a);
    return error;
}

template <uint32_t D, bool is_capped>
static cudaError_t launch_sinks(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    static_assert(small_layout<D>::bytes <= 99 * 1024, "what a block has on every GPU from sm_80 on");
    const uint32_t bytes = small_layout<D>::bytes;
    cudaError_t error = cudaFuncSetAttribute((const void *)attention_decode_sinks_kernel<D, is_capped>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = K_LAUNCH((attention_decode_sinks_kernel<D, is_capped>), n_blocks, ATTN_THREADS, bytes, stream, a);
    return error;
}

static cudaError_t launch_with_sinks(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    if (a.softcap != 0.0f)
        return a.head_dim <= 128 ? launch_sinks<128, true>(stream, a, n_blocks)
                                 : launch_sinks<256, true>(stream, a, n_blocks);
    return a.head_dim <= 128 ? launch_sinks<128, false>(stream, a, n_blocks)
                             : launch_sinks<256, false>(stream, a, n_blocks);
}

uint32_t attention_decode_shared_bytes(uint32_t head_dim)
{
    return head_dim <= 64    ? small_layout<64>::bytes
           : head_dim <= 80  ? small_layout<80>::bytes
           : head_dim <= 96  ? small_layout<96>::bytes
           : head_dim <= 128 ? small_layout<128>::bytes
                             : small_layout<256>::bytes;
}

cudaError_t launch_attention_decode(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    if (a.n_sink_positions > 0)
        return launch_with_sinks(stream, a, n_blocks);
    if (a.softcap != 0.0f)
        return a.head_dim <= 128 ? launch<128, true>(stream, a, n_blocks) : launch<256, true>(stream, a, n_blocks);
    return a.head_dim <= 64    ? launch<64, false>(stream, a, n_blocks)
           : a.head_dim <= 80  ? launch<80, false>(stream, a, n_blocks)
           : a.head_dim <= 96  ? launch<96, false>(stream, a, n_blocks)
           : a.head_dim <= 128 ? launch<128, false>(stream, a, n_blocks)
                               : launch<256, false>(stream, a, n_blocks);
}
