#include "base/buffer.h"

#include <stdlib.h>

#define FIRST_BYTES 256

void buffer_free(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){0};
}

void buffer_clear(struct buffer *b)
{
    b->n = 0;
    b->failed = false;
}

void *buffer_grow(struct buffer *b, size_t n)
{
    if (b->failed)
        return NULL;
    size_t capacity = b->capacity ? b->capacity : FIRST_BYTES;
    while (capacity - b->n < n && capacity <= SIZE_MAX / 4)
        capacity *= 2;
    char *data = capacity - b->n < n ? NULL : realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return NULL;
    }
    b->data = data;
    b->capacity = capacity;
    return b->data + b->n;
}

const char *buffer_text(struct buffer *b)
{
    char *end = buffer_reserve(b, 1);
    if (!end)
        return NULL;
    *end = '\0';
    return b->data;
}
