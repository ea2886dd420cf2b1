/* min() and max(): CUDA's overloads and no others, so that a call which is ambiguous there is ambiguous here. If one operand
 * is NaN, the other is returned. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_MIN_MAX_H
#define QUIRE_TESTS_SIMT_DEVICE_MIN_MAX_H

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

#endif
