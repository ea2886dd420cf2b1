/* The bits of a value as a value of another type. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_BITS_H
#define QUIRE_TESTS_SIMT_DEVICE_BITS_H

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

#endif
