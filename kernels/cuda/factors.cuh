/* The output of an operation that only GEMMs read (`for_gemm` of kernels/args/) in the mma form: f16 factors x · 2^-4, as
 * GEMMs multiply them (docs/internals/numerics.md §17), instead of floats. Element i of the buffer lies at byte 2 i;
 * the float would lie at byte 4 i. So rows follow each other without gaps, in the first half of the buffer. This halves
 * the bytes for writer and reader, and saves a launch that converts. The bits are the same, because a reader of floats
 * computes the same factors.
 *
 * cuda_leaves_factors() (host/state.h) decides for both sides where this applies. The host side of an operation calls
 * it, and passes the result to the kernel as for_gemm or x_for_gemm.
 */
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

/* Returns two activations as factors. */
static __device__ __forceinline__ uint32_t factors2(float low, float high)
{
    return half2_bits(low * 0x1p-4f, high * 0x1p-4f);
}

/* Stores element `at` of a buffer. */
static __device__ __forceinline__ void store1(float *out, bool as_factors, uint64_t at, float v)
{
    if (as_factors)
        ((uint16_t *)out)[at] = (uint16_t)factors2(v, 0.0f);
    else
        out[at] = v;
}

/* Stores elements at and at + 1; at is even. */
static __device__ __forceinline__ void store2(float *out, bool as_factors, uint64_t at, float low, float high)
{
    if (as_factors)
        *(uint32_t *)((uint16_t *)out + at) = factors2(low, high);
    else
        *(float2 *)(out + at) = make_float2(low, high);
}

/* Stores elements [at, at + 4); at is a multiple of 4, and the buffer is aligned to 16 bytes. */
static __device__ __forceinline__ void store4(float *out, bool as_factors, uint64_t at, float4 v)
{
    if (as_factors)
        *(uint2 *)((uint16_t *)out + at) = make_uint2(factors2(v.x, v.y), factors2(v.z, v.w));
    else
        *(float4 *)(out + at) = v;
}

#endif
