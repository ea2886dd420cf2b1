/* Words that several GPUs and the host access (peer/peer.h). */
#ifndef QUIRE_TESTS_SIMT_DEVICE_SYSTEM_H
#define QUIRE_TESTS_SIMT_DEVICE_SYSTEM_H

#include <stdint.h>
#include <time.h>

namespace simt
{
void peer_store(uint32_t *p, uint32_t v, bool releases);
uint32_t peer_load(const uint32_t *p, bool acquires);

inline uint64_t nanoseconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
} // namespace simt

#endif
