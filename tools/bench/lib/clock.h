/* The benchmarks' clock: seconds since some moment, monotonic. Any thread. */
#ifndef QUIRE_TOOLS_BENCH_CLOCK_H
#define QUIRE_TOOLS_BENCH_CLOCK_H

#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
