/* Bytes that grow at the end: frames, JSON, text, whatever is put together piece by piece.
 *
 * Zero it to begin; buffer_free() ends it and leaves it ready to begin again. Who holds the struct
 * owns the bytes. A failed allocation is remembered, so that a caller may append many pieces and
 * look at `failed` once. One thread at a time.
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
    bool failed; /* an allocation failed: the contents are void */
};

void buffer_free(struct buffer *b);
/* Keeps the memory, drops the bytes and the failure. */
void buffer_clear(struct buffer *b);

/* What buffer_reserve() does where there is no room. */
void *buffer_grow(struct buffer *b, size_t n);
/* Room for n more bytes at the end, which the caller fills and adds to b->n; NULL and b->failed. Inline with
 * buffer_append(): an event of one token is put together from dozens of pieces. */
static inline void *buffer_reserve(struct buffer *b, size_t n)
{
    if (b->failed || !b->data || n > b->capacity - b->n)
        return buffer_grow(b, n);
    return b->data + b->n;
}
/* The bytes as a string: with a NUL after them that is not counted. Good until the next call; NULL and b->failed. */
const char *buffer_text(struct buffer *b);
/* QUIRE_NO_MEMORY, also when an earlier one failed. data may be NULL when n is 0. */
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
