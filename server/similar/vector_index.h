/* Vectors of answered questions, and the search for the nearest of them. The search stays within one context.
 * Everything else in a request forms the key of its context, and vectors under different keys are never compared.
 *
 * The result equals a full search over the context. Codes of 8 bits only exclude vectors that cannot be the result
 * (scan.h). One thread, which never blocks: no I/O, no lock, and no table that grows all at once. Keys must be
 * digests (SHA-256), because tables of chosen keys would be slow.
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

/* n_numbers: dimensions of each vector. Returns NULL if memory is short, or a value is 0 or above the bounds given
 * above. Allocates 32 to 56 bytes for each of max_entries at once (which become memory when used), and 5.3 ·
 * n_numbers + about 150 bytes for each entry. */
struct vector_index *vector_index_create(uint32_t n_numbers, uint32_t max_entries);
void vector_index_free(struct vector_index *x); /* NULL is fine */
uint32_t vector_index_width(const struct vector_index *x);

/* Adds a vector of length 1 that expires at expires_ms (milliseconds since 1970). It replaces an entry of the same
 * answer. If the index is full, an expired or rarely found entry is evicted. A clock hand moves over the entries,
 * takes one of up to three counted finds from each, and stops at the first with no finds left, or at the lowest of
 * 32. Returns false if memory is short, or the vector has NaN or infinite numbers or another length. An entry of the
 * same answer is removed in that case too. */
bool vector_index_add(struct vector_index *x, const struct key256 *context, const float *vector,
                      const struct key256 *answer, int64_t expires_ms);
void vector_index_remove(struct vector_index *x, const struct key256 *answer);
void vector_index_clear(struct vector_index *x); /* about 0.1 µs an entry */

/* Finds the nearest vector of the context whose cosine is at least the threshold; of equal ones the first added. It
 * counts as used. Each call also drops up to four entries whose time is over, wherever they are. */
bool vector_index_find(struct vector_index *x, const struct key256 *context, const float *vector, float threshold,
                       int64_t now_ms, struct key256 *answer, float *similarity);

struct vector_index_stats {
    uint64_t n_entries, n_contexts, n_bytes; /* bytes: all that it asked the allocator for */
    uint64_t n_evicted; /* whose time was not over */
    uint64_t n_compared; /* vectors that finds compared whole: what the codes did not rule out */
};
void vector_index_stats(const struct vector_index *x, struct vector_index_stats *out);

#endif
