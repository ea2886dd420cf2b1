/* The benchmarks' own random numbers, so that a seed gives the same requests on every machine: splitmix64. No global
 * state; any thread on its own state. */
#ifndef QUIRE_TOOLS_BENCH_RANDOM_H
#define QUIRE_TOOLS_BENCH_RANDOM_H

#include <stdint.h>

static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [0, 1). */
static inline double bench_random_unit(uint64_t *state)
{
    return (double)(bench_random(state) >> 11) * 0x1p-53;
}

/* The state of a separate stream for each (seed, kind, index). */
static inline uint64_t bench_stream(uint64_t seed, uint64_t kind, uint64_t index)
{
    uint64_t state = seed;
    state = bench_random(&state) + kind;
    state = bench_random(&state) + index;
    return bench_random(&state);
}

#endif
