/* The two clocks. Any thread; nothing here can fail.
 *
 * quire_now_*() count from some fixed moment and never jump: for durations and deadlines.
 * quire_wall_ns() counts from 1970 and may jump: for what a person or another machine reads.
 * memory/ and scheduler/ are given the time and never ask for it, so they may not include this.
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

/* A moment of quire_now_ns() as pthread_cond_timedwait() wants it (of a condition that counts by
 * CLOCK_MONOTONIC). */
static inline struct timespec quire_until_ns(uint64_t moment_ns)
{
    return (struct timespec){.tv_sec = (time_t)(moment_ns / 1000000000u), .tv_nsec = (long)(moment_ns % 1000000000u)};
}

#endif
