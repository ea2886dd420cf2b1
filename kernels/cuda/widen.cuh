/* Converts stored numbers to f32, exactly, with the device's conversions: one instruction each; k_f32_from_f16() takes
 * ten. */
#ifndef QUIRE_KERNELS_CUDA_WIDEN_CUH
#define QUIRE_KERNELS_CUDA_WIDEN_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/format.h"
#include "kernels/math/bits.h"

/* Returns the two f16 numbers of a word, the lower half first. */
static __device__ __forceinline__ float2 widen_half2(uint32_t word)
{
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    return __half22float2(pair);
}

/* Returns the four bytes of an 8-bit cache in a word, the lowest first, times their scale, rounded once. For e4m3, the
 * f16 numbers with the same exponent bits are a 256th; the scale compensates exactly (widen_scale()). None of them is
 * NaN. */
template <enum k_dtype kind> static __device__ __forceinline__ float4 widen_bytes(uint32_t word, float scale)
{
    if (kind == K_INT)
        return make_float4((float)(int8_t)word * scale, (float)(int8_t)(word >> 8) * scale,
                           (float)(int8_t)(word >> 16) * scale, (float)(int8_t)(word >> 24) * scale);
    uint32_t even = (word << 8) & 0xff00ff00u,
             odd = word & 0xff00ff00u; /* bytes 0 and 2, 1 and 3, at e5m2's position in f16 */
    if (kind == K_E4M3) {
        even = (even & 0x80008000u) | ((even >> 1) & 0x3f803f80u);
        odd = (odd & 0x80008000u) | ((odd >> 1) & 0x3f803f80u);
    }
    float2 x = widen_half2(even), y = widen_half2(odd);
    return make_float4(x.x * scale, y.x * scale, x.y * scale, y.y * scale);
}

template <enum k_dtype kind> static __device__ __forceinline__ float widen_scale(float scale)
{
    return kind == K_E4M3 ? scale * 256.0f : scale;
}

/* Loads elements [k, k + 4) of a row that is 16-byte aligned; k is a multiple of 4. One load. */
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
