/* Stored numbers as f32, exactly, by the device's own conversions: one instruction each where k_f32_from_f16() takes ten. */
#ifndef QUIRE_KERNELS_CUDA_WIDEN_CUH
#define QUIRE_KERNELS_CUDA_WIDEN_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/kernels.h"

/* The two f16 numbers of a word, the lower half first. */
static __device__ __forceinline__ float2 widen_half2(uint32_t word)
{
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    return __half22float2(pair);
}

/* Elements [k, k + 4) of a row that begins 16-byte aligned; k is a multiple of 4. One load. */
template <enum k_dtype dtype> static __device__ __forceinline__ float4 widen4(const unsigned char *row, uint32_t k)
{
    if (dtype == K_F32)
        return ((const float4 *)row)[k / 4];
    uint2 words = ((const uint2 *)row)[k / 4];
    if (dtype == K_F16) {
        float2 low = widen_half2(words.x), high = widen_half2(words.y);
        return make_float4(low.x, low.y, high.x, high.y);
    }
    return make_float4(k_f32_from_bits(words.x << 16), k_f32_from_bits(words.x & 0xffff0000u),
                       k_f32_from_bits(words.y << 16), k_f32_from_bits(words.y & 0xffff0000u));
}

#endif
