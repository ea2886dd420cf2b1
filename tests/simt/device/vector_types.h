/* CUDA's vector types: the same names, layouts and alignments. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_VECTOR_TYPES_H
#define QUIRE_TESTS_SIMT_DEVICE_VECTOR_TYPES_H

#include <stddef.h>

constexpr size_t simt_vector_align(size_t bytes)
{
    return bytes < 16 ? bytes : 16;
}

#define SIMT_VECTOR(T, name) \
    struct name##1 \
    { \
        T x; \
    }; \
    struct alignas(simt_vector_align(2 * sizeof(T))) name##2 \
    { \
        T x, y; \
    }; \
    struct name##3 \
    { \
        T x, y, z; \
    }; \
    struct alignas(simt_vector_align(4 * sizeof(T))) name##4 \
    { \
        T x, y, z, w; \
    }; \
    inline name##1 make_##name##1(T x) \
    { \
        return {x}; \
    } \
    inline name##2 make_##name##2(T x, T y) \
    { \
        return {x, y}; \
    } \
    inline name##3 make_##name##3(T x, T y, T z) \
    { \
        return {x, y, z}; \
    } \
    inline name##4 make_##name##4(T x, T y, T z, T w) \
    { \
        return {x, y, z, w}; \
    }

SIMT_VECTOR(signed char, char)
SIMT_VECTOR(unsigned char, uchar)
SIMT_VECTOR(short, short)
SIMT_VECTOR(unsigned short, ushort)
SIMT_VECTOR(int, int)
SIMT_VECTOR(unsigned, uint)
SIMT_VECTOR(long long, longlong)
SIMT_VECTOR(unsigned long long, ulonglong)
SIMT_VECTOR(float, float)
SIMT_VECTOR(double, double)
#undef SIMT_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
    {
    }
};

#endif
