/* A fast checksum that covers every word. It detects accidental damage, not forgery. Pure; any thread. */
#ifndef QUIRE_BASE_CHECKSUM_H
#define QUIRE_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of n bytes, read as little-endian words. To continue a checksum, pass the previous result as
 * `seed`. */
uint64_t quire_checksum(uint64_t seed, const void *data, size_t n);

#endif
