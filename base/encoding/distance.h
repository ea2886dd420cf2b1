/* The distance of two names, for "did you mean". Owns nothing. Any thread. */
#ifndef QUIRE_BASE_ENCODING_DISTANCE_H
#define QUIRE_BASE_ENCODING_DISTANCE_H

#include <stddef.h>

/* Levenshtein distance of n bytes at a and m bytes at b. 64 if one of them has more than 64 bytes. */
unsigned quire_distance(const char *a, size_t n, const char *b, size_t m);

#endif
