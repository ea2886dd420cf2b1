/* A checksum against mistakes and faults, not against enemies: quick, and of every word. Pure; any thread. */
#ifndef QUIRE_BASE_CHECKSUM_H
#define QUIRE_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes, read as little-endian words. What came before goes on as `seed`. */
uint64_t quire_checksum(uint64_t seed, const void *data, size_t n);

#endif
