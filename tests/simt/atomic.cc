/* The atomic operation that implements all others. */
#include "tests/simt/state.h"

namespace simt
{

template <class T> static inline T swap_if(T *p, T expected, T desired, const void *code)
{
    if ((uintptr_t)p % sizeof(T))
        fault("MISALIGNED", true, code, "atomic of %zu bytes at %p", sizeof(T), (void *)p);
    if (instrumented)
        access(p, sizeof(T), ATOMIC, code);
    __atomic_compare_exchange(p, &expected, &desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

unsigned compare_and_swap(unsigned *p, unsigned expected, unsigned desired)
{
    return swap_if(p, expected, desired, __builtin_return_address(0));
}

unsigned long long compare_and_swap(unsigned long long *p, unsigned long long expected, unsigned long long desired)
{
    return swap_if(p, expected, desired, __builtin_return_address(0));
}

} // namespace simt
