/* The monotonic clock and the wall clock. Any thread. No function can fail.
 *
 * quire_now_*() count from an arbitrary fixed moment and never jump: use them for durations and deadlines.
 * quire_wall_ns() counts from 1970 and may jump: use it for times that people or other machines read. memory/ and
 * scheduler/ must not include this header; their callers pass the time.
 */
#ifndef QUIRE_BASE_CLOCK_H
#define QUIRE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t quire_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t quire_now_ns(void)
{
    return quire_clock_ns(CLOCK_MONOTONIC);
}
static inline uint64_t quire_now_us(void)
{
    return quire_now_ns() / 1000;
}
static inline uint64_t quire_now_ms(void)
{
    return quire_now_ns() / 1000000;
}
static inline double quire_now_s(void)
{
    return (double)quire_now_ns() * 1e-9;
}

static inline uint64_t quire_wall_ns(void)
{
    return quire_clock_ns(CLOCK_REALTIME);
}

/* Converts a quire_now_ns() time for pthread_cond_timedwait(), for a condition variable that uses CLOCK_MONOTONIC. */
static inline struct timespec quire_until_ns(uint64_t moment_ns)
{
    return (struct timespec){.tv_sec = (time_t)(moment_ns / 1000000000u), .tv_nsec = (long)(moment_ns % 1000000000u)};
}

#endif
