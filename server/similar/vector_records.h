/* The record format of a file of vectors (vector_log.h), and its validation. Pure; any thread.
 *
 *     head    "QuireVec", u32 version 1, u32 numbers of a vector, identity 32, sum 8
 *     record  u32 kind, u32 0, answer 32, and of a vector: context 32, u64 expires_ms, f32 numbers; then sum 8
 * Kinds: 1 a vector, which replaces one of the same answer; 2 a removed answer. Little-endian. A sum is the first 8
 * bytes of the labelled BLAKE2b of the bytes before it. */
#ifndef QUIRE_SIMILAR_VECTOR_RECORDS_H
#define QUIRE_SIMILAR_VECTOR_RECORDS_H

#include "base/buffer.h"
#include "base/hash.h"

#define VECTOR_HEAD_BYTES 56u
#define VECTOR_GONE_BYTES 48u

static inline size_t vector_record_bytes(uint32_t n_numbers)
{
    return VECTOR_GONE_BYTES + 40 + (size_t)n_numbers * 4;
}

struct vector_record {
    struct key256 answer, context;
    int64_t expires_ms;
    const uint8_t *vector; /* n_numbers f32 of the file, at no particular address; NULL: the answer is gone */
};

/* bytes: one record alone. Returns false if it is not a record for vectors of this width, or its sum is wrong. */
bool vector_record_check(const uint8_t *bytes, size_t n, uint32_t n_numbers, struct vector_record *out);
/* For a record that has a vector. */
void vector_record_numbers(const struct vector_record *r, uint32_t n_numbers, float *out);

/* Append; a failed allocation is the buffer's to say. */
void vector_records_head(struct buffer *to, const struct key256 *identity, uint32_t n_numbers);
void vector_records_add(struct buffer *to, const struct key256 *context, const float *vector, uint32_t n_numbers,
                        const struct key256 *answer, int64_t expires_ms);
void vector_records_gone(struct buffer *to, const struct key256 *answer);

/* Whether the bytes are a file of this identity and width. *n_whole: where its last whole record ends; less than n where a
 * process was killed while it wrote, or the power failed and the file ends in zeros, which is no fault. QUIRE_INVALID says what is wrong: a record that is whole and does
 * not hold what was written, or another's file. */
int vector_records_check(const uint8_t *bytes, size_t n, const struct key256 *identity, uint32_t n_numbers,
                         size_t *n_whole, struct quire_error *err);
/* Reads the record at *at, from bytes that passed the check; the first is at 0. *at becomes the start of the next
 * one. Returns false at the end. */
bool vector_records_next(const uint8_t *bytes, size_t n_whole, uint32_t n_numbers, size_t *at,
                         struct vector_record *out);
#endif
