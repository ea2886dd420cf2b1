/* The collective operations of a warp: shuffles, votes, reductions. Each lane passes a pointer to its own argument, and
 * the last one computes the result for all (warp.cc). */
#ifndef QUIRE_TESTS_SIMT_DEVICE_WARP_H
#define QUIRE_TESTS_SIMT_DEVICE_WARP_H

#include <stdint.h>
#include <string.h>

#include "tests/simt/device/thread.h"

namespace simt
{

enum Op { SHUFFLE, BALLOT, REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, SYNCWARP, LDMATRIX, LDMATRIX_TRANS, MMA_F16, MMA_S8 };

struct ShuffleArgument {
    uint64_t value, result;
    int from; /* lane */
};
struct VoteArgument { /* BALLOT: value is the predicate */
    unsigned value, result;
};
struct LdmatrixArgument {
    const void *row;
    uint32_t *result; /* [4] */
};
struct MmaArgument {
    float *c; /* [4], in and out */
    const uint32_t *a, *b; /* [4], [2] */
};
struct MmaS8Argument {
    int32_t *c;
    const uint32_t *a, *b;
};

void collective(Op op, unsigned mask, void *argument, int line, const char *file);

template <class T> inline T shuffle(unsigned mask, T value, int from, int line, const char *file)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    ShuffleArgument a = {0, 0, from};
    memcpy(&a.value, &value, sizeof value);
    collective(SHUFFLE, mask, &a, line, file);
    memcpy(&value, &a.result, sizeof value);
    return value;
}

inline unsigned vote(Op op, unsigned mask, unsigned value, int line, const char *file)
{
    VoteArgument a = {value, 0};
    collective(op, mask, &a, line, file);
    return a.result;
}

inline int lane()
{
    return (int)simt_thread->lane;
}

/* Returns the first lane of the segment of `width` lanes that contains the lane. */
inline int segment(int lane, int width)
{
    return lane & ~(width - 1);
}

} // namespace simt

/* A lane whose source is outside its segment of `width` lanes keeps its own value. */
template <class T> inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, SIMT_SITE)
{
    return simt::shuffle(mask, value, simt::segment(simt::lane(), width) | (from & (width - 1)), line, file);
}

template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIMT_SITE)
{
    int own = simt::lane(), from = own ^ bits;
    bool beyond = simt::segment(from, width) > simt::segment(own, width);
    return simt::shuffle(mask, value, beyond ? own : from, line, file);
}

template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE)
{
    int own = simt::lane(), from = own + (int)delta;
    bool inside = from < simt::segment(own, width) + width;
    return simt::shuffle(mask, value, inside ? from : own, line, file);
}

template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE)
{
    int own = simt::lane(), from = own - (int)delta;
    return simt::shuffle(mask, value, from >= simt::segment(own, width) ? from : own, line, file);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE)
{
    return simt::vote(simt::BALLOT, mask, predicate != 0, line, file);
}

inline int __any_sync(unsigned mask, int predicate, SIMT_SITE)
{
    return __ballot_sync(mask, predicate, line, file) != 0;
}

inline int __all_sync(unsigned mask, int predicate, SIMT_SITE)
{
    return __ballot_sync(mask, predicate, line, file) == mask;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value, SIMT_SITE)
{
    return simt::vote(simt::REDUCE_ADD, mask, value, line, file);
}

inline unsigned __reduce_min_sync(unsigned mask, unsigned value, SIMT_SITE)
{
    return simt::vote(simt::REDUCE_MIN, mask, value, line, file);
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value, SIMT_SITE)
{
    return simt::vote(simt::REDUCE_MAX, mask, value, line, file);
}

inline int __reduce_add_sync(unsigned mask, int value, SIMT_SITE)
{
    return (int)simt::vote(simt::REDUCE_ADD, mask, (unsigned)value, line, file);
}

/* Signed integers with a flipped top bit order like unsigned ones. */
inline int __reduce_min_sync(unsigned mask, int value, SIMT_SITE)
{
    return (int)(simt::vote(simt::REDUCE_MIN, mask, (unsigned)value ^ 1u << 31, line, file) ^ 1u << 31);
}

inline int __reduce_max_sync(unsigned mask, int value, SIMT_SITE)
{
    return (int)(simt::vote(simt::REDUCE_MAX, mask, (unsigned)value ^ 1u << 31, line, file) ^ 1u << 31);
}

inline void __syncwarp(unsigned mask = ~0u, SIMT_SITE)
{
    simt::collective(simt::SYNCWARP, mask, nullptr, line, file);
}

/* Hardware returns the lanes that happen to be converged. All live lanes are one possible result. */
inline unsigned __activemask()
{
    return simt::active_mask();
}

#endif
