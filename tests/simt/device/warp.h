/* The collective operations of a warp, as kernels call them: shuffles, votes, reductions. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_WARP_H
#define QUIRE_TESTS_SIMT_DEVICE_WARP_H

#include "tests/simt/device/meeting.h"

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
