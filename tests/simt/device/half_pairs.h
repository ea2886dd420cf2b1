/* Pairs of 16-bit floats: __half2 and __nv_bfloat162. x is the low half of the word. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_HALF_PAIRS_H
#define QUIRE_TESTS_SIMT_DEVICE_HALF_PAIRS_H

#include "tests/simt/device/half.h"
#include "tests/simt/device/vector_types.h"

struct alignas(4) __half2 {
    __half x, y;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;

inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}

inline __half2 __half2half2(__half x)
{
    return {x, x};
}

inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}

inline __half2 __float2half2_rn(float x)
{
    return {__half(x), __half(x)};
}

inline __half2 __float22half2_rn(float2 v)
{
    return {__half(v.x), __half(v.y)};
}

inline float2 __half22float2(__half2 v)
{
    return {(float)v.x, (float)v.y};
}

inline __half __low2half(__half2 v)
{
    return v.x;
}

inline __half __high2half(__half2 v)
{
    return v.y;
}

inline float __low2float(__half2 v)
{
    return (float)v.x;
}

inline float __high2float(__half2 v)
{
    return (float)v.y;
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}

inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)};
}

inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {(float)v.x, (float)v.y};
}

inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}

inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}

#endif
