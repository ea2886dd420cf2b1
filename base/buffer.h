/* A byte array that grows at the end. It holds frames, JSON, text and other data that is built piece by piece.
 *
 * Zero the struct to begin. buffer_free() releases the memory and leaves the struct ready for reuse. The holder of the
 * struct owns the bytes. A failed allocation sets `failed`, so a caller may append many pieces and check `failed` once.
 * One thread at a time.
 */
#ifndef QUIRE_BASE_BUFFER_H
#define QUIRE_BASE_BUFFER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buffer {
    char *data; /* not NUL-terminated */
    size_t n, capacity;
    bool failed; /* an allocation failed; the contents are invalid */
};

void buffer_free(struct buffer *b);
/* Keeps the memory, drops the bytes and clears the failure. */
void buffer_clear(struct buffer *b);

/* The slow path of buffer_reserve(): allocates more memory. */
void *buffer_grow(struct buffer *b, size_t n);
/* Returns space for n more bytes at the end; the caller fills it and adds n to b->n. On failure returns NULL and sets
 * b->failed. Inline, as buffer_append() is, because the event of one token consists of dozens of pieces. */
static inline void *buffer_reserve(struct buffer *b, size_t n)
{
    if (b->failed || !b->data || n > b->capacity - b->n)
        return buffer_grow(b, n);
    return b->data + b->n;
}
/* Returns the bytes as a string, with a NUL after them that n does not count. Valid until the next call. On failure
 * returns NULL and sets b->failed. */
const char *buffer_text(struct buffer *b);
/* Returns QUIRE_NO_MEMORY if this or an earlier allocation failed. data may be NULL when n is 0. */
static inline int buffer_append(struct buffer *b, const void *data, size_t n)
{
    void *p = buffer_reserve(b, n);
    if (!p)
        return QUIRE_NO_MEMORY;
    if (n)
        memcpy(p, data, n);
    b->n += n;
    return QUIRE_OK;
}

#endif
