/* The arithmetic of a single thread: operations and conversions with one rounding.
 *
 * The functions that a GPU approximates (rsqrtf, __expf, __fdividef, ex2, ...) are missing on purpose: no stub has
 * their bits, and kernels use kernels/math/. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_ARITHMETIC_H
#define QUIRE_TESTS_SIMT_DEVICE_ARITHMETIC_H

#include <math.h>

#define SIMT_ARITHMETIC(T, prefix, sqrt_) \
    inline T __##prefix##add_rn(T a, T b) \
    { \
        return a + b; \
    } \
    inline T __##prefix##sub_rn(T a, T b) \
    { \
        return a - b; \
    } \
    inline T __##prefix##mul_rn(T a, T b) \
    { \
        return a * b; \
    } \
    inline T __##prefix##div_rn(T a, T b) \
    { \
        return a / b; \
    } \
    inline T __##prefix##sqrt_rn(T a) \
    { \
        return sqrt_(a); \
    }

SIMT_ARITHMETIC(float, f, __builtin_sqrtf)
SIMT_ARITHMETIC(double, d, __builtin_sqrt)
#undef SIMT_ARITHMETIC

inline float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

inline double __fma_rn(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}

inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

inline float __double2float_rn(double x)
{
    return (float)x;
}

inline float __int2float_rn(int x)
{
    return (float)x;
}

inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

inline float __ll2float_rn(long long x)
{
    return (float)x;
}

inline float __ull2float_rn(unsigned long long x)
{
    return (float)x;
}

inline double __int2double_rn(int x)
{
    return x;
}

inline double __uint2double_rn(unsigned x)
{
    return x;
}

inline double __ll2double_rn(long long x)
{
    return (double)x;
}

inline double __ull2double_rn(unsigned long long x)
{
    return (double)x;
}

/* Values out of range saturate. A NaN is 0 from f32 to 32 bits, and otherwise only the top bit (PTX ISA, cvt). */
#define SIMT_TO_INTEGER(name, From, To, round_, low, limit, of_nan) \
    inline To name(From x) \
    { \
        From r = round_(x); \
        if (r != r) \
            return of_nan; \
        if (r < (From)low) \
            return (To)low; \
        return r < (From)limit ? (To)r : (To)(low < 0 ? ~(1ull << (sizeof(To) * 8 - 1)) : ~0ull); \
    }

#define SIMT_TOP32 (1u << 31)
#define SIMT_TOP64 (1ull << 63)
SIMT_TO_INTEGER(__float2int_rn, float, int, __builtin_rintf, -0x1p31, 0x1p31, 0)
SIMT_TO_INTEGER(__float2int_rz, float, int, __builtin_truncf, -0x1p31, 0x1p31, 0)
SIMT_TO_INTEGER(__float2int_rd, float, int, __builtin_floorf, -0x1p31, 0x1p31, 0)
SIMT_TO_INTEGER(__float2uint_rn, float, unsigned, __builtin_rintf, 0, 0x1p32, 0)
SIMT_TO_INTEGER(__float2uint_rz, float, unsigned, __builtin_truncf, 0, 0x1p32, 0)
SIMT_TO_INTEGER(__double2int_rn, double, int, __builtin_rint, -0x1p31, 0x1p31, (int)SIMT_TOP32)
SIMT_TO_INTEGER(__double2int_rz, double, int, __builtin_trunc, -0x1p31, 0x1p31, (int)SIMT_TOP32)
SIMT_TO_INTEGER(__double2uint_rn, double, unsigned, __builtin_rint, 0, 0x1p32, SIMT_TOP32)
SIMT_TO_INTEGER(__double2uint_rz, double, unsigned, __builtin_trunc, 0, 0x1p32, SIMT_TOP32)
SIMT_TO_INTEGER(__double2ll_rn, double, long long, __builtin_rint, -0x1p63, 0x1p63, (long long)SIMT_TOP64)
SIMT_TO_INTEGER(__double2ll_rz, double, long long, __builtin_trunc, -0x1p63, 0x1p63, (long long)SIMT_TOP64)
SIMT_TO_INTEGER(__double2ull_rn, double, unsigned long long, __builtin_rint, 0, 0x1p64, SIMT_TOP64)
SIMT_TO_INTEGER(__double2ull_rz, double, unsigned long long, __builtin_trunc, 0, 0x1p64, SIMT_TOP64)
#undef SIMT_TOP32
#undef SIMT_TOP64
#undef SIMT_TO_INTEGER

#endif
