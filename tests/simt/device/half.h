/* 16-bit floats: __half and __nv_bfloat16, and the conversions to and from f32. Pairs of them: half_pairs.h.
 *
 * Conversions give the hardware's bits: round to nearest even, denormals kept, overflow to infinity, and a single NaN
 * for all NaNs (f16 and bf16 0x7fff, f32 from f16 0x7fffffff; f32 from bf16 keeps the bits). Arithmetic on halves is
 * missing, because kernels compute in f32. A half converts to a float only explicitly, so that a*b of two halves is a
 * compile error here instead of an f32 product.
 */
#ifndef QUIRE_TESTS_SIMT_DEVICE_HALF_H
#define QUIRE_TESTS_SIMT_DEVICE_HALF_H

#include <stdint.h>

#include "tests/simt/device/bits.h"

/* The compiler's names of two instructions. Including immintrin.h for them took 0.8 s for each file with kernels. */
typedef float simt_4_floats __attribute__((vector_size(16)));
typedef short simt_8_halves __attribute__((vector_size(16)));

inline uint16_t simt_f16_of_f32(float x)
{
    return x != x ? (uint16_t)0x7fff : (uint16_t)__builtin_ia32_vcvtps2ph(simt_4_floats{x}, 0)[0]; /* 0: nearest even */
}

inline float simt_f32_of_f16(uint16_t x)
{
    return (x & 0x7fff) > 0x7c00 ? __uint_as_float(0x7fffffff) : __builtin_ia32_vcvtph2ps(simt_8_halves{(short)x})[0];
}

inline uint16_t simt_bf16_of_f32(float x)
{
    unsigned u = __float_as_uint(x);
    return x != x ? (uint16_t)0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

inline float simt_f32_of_bf16(uint16_t x)
{
    return __uint_as_float((unsigned)x << 16);
}

#define SIMT_HALF(T, of_f32, to_f32) \
    struct T { \
        uint16_t bits; \
        T() = default; \
        explicit T(float x) : bits(of_f32(x)) \
        { \
        } \
        explicit operator float() const \
        { \
            return to_f32(bits); \
        } \
    };

SIMT_HALF(__half, simt_f16_of_f32, simt_f32_of_f16)
SIMT_HALF(__nv_bfloat16, simt_bf16_of_f32, simt_f32_of_bf16)
#undef SIMT_HALF

typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;

inline __half __ushort_as_half(unsigned short bits)
{
    return simt_bits<__half>(bits);
}

inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return simt_bits<__nv_bfloat16>(bits);
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

inline __half __float2half(float x)
{
    return __half(x);
}

inline __half __float2half_rn(float x)
{
    return __half(x);
}

inline float __half2float(__half x)
{
    return (float)x;
}

inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}

inline float __bfloat162float(__nv_bfloat16 x)
{
    return (float)x;
}

#endif
