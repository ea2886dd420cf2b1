/* The operations of a single thread: bits, integers, correctly rounded arithmetic, loads with a cache hint.
 *
 * The functions that a GPU approximates (rsqrtf, __expf, __fdividef, ex2, ...) are missing on purpose: no stub has
 * their bits, and kernels use kernels/math/. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_SCALAR_H
#define QUIRE_TESTS_SIMT_DEVICE_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

template <class To, class From> inline To simt_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float x)
{
    return simt_bits<unsigned>(x);
}

inline int __float_as_int(float x)
{
    return simt_bits<int>(x);
}

inline float __uint_as_float(unsigned x)
{
    return simt_bits<float>(x);
}

inline float __int_as_float(int x)
{
    return simt_bits<float>(x);
}

inline long long __double_as_longlong(double x)
{
    return simt_bits<long long>(x);
}

inline double __longlong_as_double(long long x)
{
    return simt_bits<double>(x);
}

inline double __hiloint2double(int high, int low)
{
    return simt_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}

inline int __double2hiint(double x)
{
    return (int)(simt_bits<uint64_t>(x) >> 32);
}

inline int __double2loint(double x)
{
    return (int)(uint32_t)simt_bits<uint64_t>(x);
}

/* ---- integers ---- */

inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

inline unsigned __brev(unsigned x)
{
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}

inline unsigned long long __brevll(unsigned long long x)
{
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* Byte i of the result is byte (selector nibble i) of b:a; bit 3 of a nibble copies that byte's sign. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (s & 7)) & 255;
        if (s & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

/* ---- arithmetic with one rounding ---- */

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

/* CUDA's overloads and no others, so that a call which is ambiguous there is ambiguous here. If one operand is NaN, the
 * other is returned. */
#define SIMT_MIN_MAX(A, B, R) \
    inline R min(A a, B b) \
    { \
        return (R)b < (R)a ? (R)b : (R)a; \
    } \
    inline R max(A a, B b) \
    { \
        return (R)a < (R)b ? (R)b : (R)a; \
    }

SIMT_MIN_MAX(int, int, int)
SIMT_MIN_MAX(unsigned, unsigned, unsigned)
SIMT_MIN_MAX(int, unsigned, unsigned)
SIMT_MIN_MAX(unsigned, int, unsigned)
SIMT_MIN_MAX(long, long, long)
SIMT_MIN_MAX(unsigned long, unsigned long, unsigned long)
SIMT_MIN_MAX(long, unsigned long, unsigned long)
SIMT_MIN_MAX(unsigned long, long, unsigned long)
SIMT_MIN_MAX(long long, long long, long long)
SIMT_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
SIMT_MIN_MAX(long long, unsigned long long, unsigned long long)
SIMT_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef SIMT_MIN_MAX

#define SIMT_MIN_MAX(A, B, R, fmin_, fmax_) \
    inline R min(A a, B b) \
    { \
        return fmin_(a, b); \
    } \
    inline R max(A a, B b) \
    { \
        return fmax_(a, b); \
    }

SIMT_MIN_MAX(float, float, float, __builtin_fminf, __builtin_fmaxf)
SIMT_MIN_MAX(double, double, double, __builtin_fmin, __builtin_fmax)
SIMT_MIN_MAX(float, double, double, __builtin_fmin, __builtin_fmax)
SIMT_MIN_MAX(double, float, double, __builtin_fmin, __builtin_fmax)
#undef SIMT_MIN_MAX

/* ---- loads and stores with a cache hint: plain ones ---- */

#define SIMT_LOAD(name) \
    template <class T> inline T name(const T *p) \
    { \
        return *p; \
    }
#define SIMT_STORE(name) \
    template <class T> inline void name(T *p, T value) \
    { \
        *p = value; \
    }

SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldlu)
SIMT_LOAD(__ldcv)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwb)
SIMT_STORE(__stwt)
#undef SIMT_LOAD
#undef SIMT_STORE

#endif
