/* Vectors of questions that were answered, and the nearest of them to another. Within one context only: what else a question was
 * asked with is a key, and vectors under different keys are never compared.
 *
 * What is found is what a look at every vector of the context would find: codes of 8 bits only say which cannot be it
 * (scan.h). One thread, which is never made to wait: no I/O, no lock, no table that grows all at once. Keys are digests
 * (SHA-256): tables of keys that somebody chose would be slow.
 */
#ifndef QUIRE_SIMILAR_VECTOR_INDEX_H
#define QUIRE_SIMILAR_VECTOR_INDEX_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vector_index;

#define VECTOR_MAX_NUMBERS 8192u
#define VECTOR_MAX_ENTRIES (1u << 24)
#define VECTOR_SQUARES_SLACK 1e-2 /* the squares of a vector of length 1 sum to 1 within this */

/* Of vectors of so many numbers. NULL: out of memory, or more than the two bounds above, or 0. Takes 32 to 56 bytes for each of
 * max_entries at once (which is memory when it is used), and 5.3 · n_numbers and about 150 bytes for each entry. */
struct vector_index *vector_index_create(uint32_t n_numbers, uint32_t max_entries);
void vector_index_free(struct vector_index *x); /* NULL is fine */
uint32_t vector_index_width(const struct vector_index *x);

/* A vector of length 1, until then (milliseconds since 1970). It takes the place of one of the same answer. Where all places are
 * taken one goes that has expired, or else one that was seldom found: a hand goes round all entries, takes one of up to
 * three finds from each that it passes, and stops at the first that has none, or at the least of 32. False: out of memory,
 * or the vector has numbers that are none, or another length; an entry of the same answer is gone then, too. */
bool vector_index_add(struct vector_index *x, const struct key256 *context, const float *vector,
                      const struct key256 *answer, int64_t expires_ms);
void vector_index_remove(struct vector_index *x, const struct key256 *answer);
void vector_index_clear(struct vector_index *x); /* about 0.1 µs an entry */

/* The nearest of the context whose cosine is at least the threshold; of equals the one that was added first. It counts as
 * used. Each call also drops up to four entries whose time is over, wherever they are. */
bool vector_index_find(struct vector_index *x, const struct key256 *context, const float *vector, float threshold,
                       int64_t now_ms, struct key256 *answer, float *similarity);

struct vector_index_stats {
    uint64_t n_entries, n_contexts, n_bytes; /* bytes: all that it asked the allocator for */
    uint64_t n_evicted; /* whose time was not over */
    uint64_t n_compared; /* vectors that finds compared whole: what the codes did not rule out */
};
void vector_index_stats(const struct vector_index *x, struct vector_index_stats *out);

#endif
