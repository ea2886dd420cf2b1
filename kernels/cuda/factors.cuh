/* What an operation leaves for GEMMs alone (`for_gemm` of kernels.h) in the mma form: f16 factors x · 2^-4, as GEMMs multiply
 * them (docs/numerics.md §17), and not floats. Element i of the buffer lies at byte 2 i where the float would lie at byte 4 i: rows
 * follow each other without gaps, in the first half of the buffer. Half the bytes for who writes and who reads, and no
 * launch in between that converts; the bits are the same, since whoever reads floats makes the same factors of them.
 *
 * cuda_leaves_factors() (host/state.h) says where it is so, for both sides. The host's side of an operation asks it, and a
 * kernel's for_gemm or x_for_gemm is its answer: a kernel asks nobody. */
#ifndef QUIRE_KERNELS_CUDA_FACTORS_CUH
#define QUIRE_KERNELS_CUDA_FACTORS_CUH

#include "kernels/cuda/device.cuh"

static __device__ __forceinline__ uint32_t half2_bits(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Two activations as factors. */
static __device__ __forceinline__ uint32_t factors2(float low, float high)
{
    return half2_bits(low * 0x1p-4f, high * 0x1p-4f);
}

/* Element `at` of a buffer that somebody reads. */
static __device__ __forceinline__ void store1(float *out, bool as_factors, uint64_t at, float v)
{
    if (as_factors)
        ((uint16_t *)out)[at] = (uint16_t)factors2(v, 0.0f);
    else
        out[at] = v;
}

/* Elements at and at + 1; at is even. */
static __device__ __forceinline__ void store2(float *out, bool as_factors, uint64_t at, float low, float high)
{
    if (as_factors)
        *(uint32_t *)((uint16_t *)out + at) = factors2(low, high);
    else
        *(float2 *)(out + at) = make_float2(low, high);
}

/* Elements [at, at + 4); at is a multiple of 4, the buffer aligned to 16 bytes. */
static __device__ __forceinline__ void store4(float *out, bool as_factors, uint64_t at, float4 v)
{
    if (as_factors)
        *(uint2 *)((uint16_t *)out + at) = make_uint2(factors2(v.x, v.y), factors2(v.z, v.w));
    else
        *(float4 *)(out + at) = v;
}

#endif
