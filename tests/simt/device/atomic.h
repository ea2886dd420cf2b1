/* Atomics on global and shared memory. They are relaxed. Within a block only one thread runs at a time; blocks run on
 * several OS threads, so the operation itself is atomic too. The detector receives each access.
 *
 * The compiler's atomics are not called by name here, because in an instrumented file they would become calls into
 * ThreadSanitizer's library.
 */
#ifndef QUIRE_TESTS_SIMT_DEVICE_ATOMIC_H
#define QUIRE_TESTS_SIMT_DEVICE_ATOMIC_H

#include <stddef.h>

#include "tests/simt/device/bits.h"
#include "tests/simt/device/min_max.h"

namespace simt
{
/* Executes *p == expected ? (*p = desired) : nothing, and returns the old value, of 4 or 8 bytes. */
unsigned compare_and_swap(unsigned *p, unsigned expected, unsigned desired);
unsigned long long compare_and_swap(unsigned long long *p, unsigned long long expected, unsigned long long desired);

template <size_t bytes> struct Word;
template <> struct Word<4> {
    typedef unsigned type;
};
template <> struct Word<8> {
    typedef unsigned long long type;
};

/* Executes *p = op(*p) and returns the old value. */
template <class T, class Op> inline T atomic_update(T *p, Op op)
{
    typedef typename Word<sizeof(T)>::type W;
    W *word = (W *)p;
    W old = compare_and_swap(word, 0, 0);
    for (;;) {
        W seen = compare_and_swap(word, old, simt_bits<W>((T)op(simt_bits<T>(old))));
        if (seen == old)
            return simt_bits<T>(old);
        old = seen;
    }
}
} // namespace simt

#define SIMT_ATOMIC(name, T, expression) \
    inline T name(T *p, T v) \
    { \
        return simt::atomic_update(p, [v](T old) -> T { return expression; }); \
    }

SIMT_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)v))
SIMT_ATOMIC(atomicAdd, unsigned, old + v)
SIMT_ATOMIC(atomicAdd, unsigned long long, old + v)
SIMT_ATOMIC(atomicAdd, float, old + v)
SIMT_ATOMIC(atomicAdd, double, old + v)
SIMT_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
SIMT_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)v))
SIMT_ATOMIC(atomicSub, unsigned, old - v)
SIMT_ATOMIC(atomicMin, int, min(old, v))
SIMT_ATOMIC(atomicMin, unsigned, min(old, v))
SIMT_ATOMIC(atomicMin, long long, min(old, v))
SIMT_ATOMIC(atomicMin, unsigned long long, min(old, v))
SIMT_ATOMIC(atomicMax, int, max(old, v))
SIMT_ATOMIC(atomicMax, unsigned, max(old, v))
SIMT_ATOMIC(atomicMax, long long, max(old, v))
SIMT_ATOMIC(atomicMax, unsigned long long, max(old, v))
SIMT_ATOMIC(atomicAnd, int, old &v)
SIMT_ATOMIC(atomicAnd, unsigned, old &v)
SIMT_ATOMIC(atomicAnd, unsigned long long, old &v)
SIMT_ATOMIC(atomicOr, int, old | v)
SIMT_ATOMIC(atomicOr, unsigned, old | v)
SIMT_ATOMIC(atomicOr, unsigned long long, old | v)
SIMT_ATOMIC(atomicXor, int, old ^ v)
SIMT_ATOMIC(atomicXor, unsigned, old ^ v)
SIMT_ATOMIC(atomicXor, unsigned long long, old ^ v)
SIMT_ATOMIC(atomicExch, int, ((void)old, v))
SIMT_ATOMIC(atomicExch, unsigned, ((void)old, v))
SIMT_ATOMIC(atomicExch, unsigned long long, ((void)old, v))
SIMT_ATOMIC(atomicExch, float, ((void)old, v))
#undef SIMT_ATOMIC

inline int atomicCAS(int *p, int expected, int desired)
{
    return (int)simt::compare_and_swap((unsigned *)p, (unsigned)expected, (unsigned)desired);
}

inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned desired)
{
    return simt::compare_and_swap(p, expected, desired);
}

inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long expected, unsigned long long desired)
{
    return simt::compare_and_swap(p, expected, desired);
}

#endif
