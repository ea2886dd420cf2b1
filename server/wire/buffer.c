#include "server/wire/fields.h"

#include <stdlib.h>
#include <string.h>

void wire_buffer_free(struct wire_buffer *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

uint8_t *wire_reserve(struct wire_buffer *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (!b->data || n > b->capacity - b->n) {
        size_t capacity = b->capacity ? b->capacity : 512;
        while (capacity - b->n < n && capacity <= SIZE_MAX / 4)
            capacity *= 2;
        uint8_t *data = capacity - b->n < n ? NULL : realloc(b->data, capacity);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
    }
    return b->data + b->n;
}

int wire_buffer_append(struct wire_buffer *b, const void *data, size_t n)
{
    uint8_t *p = wire_reserve(b, n);
    if (!p)
        return QUIRE_NO_MEMORY;
    if (n)
        memcpy(p, data, n);
    b->n += n;
    return QUIRE_OK;
}

int wire_frame_begin(struct wire_buffer *b, uint16_t type, uint64_t request, size_t *mark)
{
    uint8_t *p = wire_reserve(b, WIRE_HEADER_BYTES);
    if (!p)
        return QUIRE_NO_MEMORY;
    *mark = b->n;
    le_store_u32(p, 0);
    le_store_u16(p + 4, type);
    le_store_u16(p + 6, 0);
    le_store_u64(p + 8, request);
    b->n += WIRE_HEADER_BYTES;
    return QUIRE_OK;
}

int wire_frame_end(struct wire_buffer *b, size_t mark)
{
    if (b->failed)
        return QUIRE_NO_MEMORY;
    size_t n = b->n - mark - WIRE_HEADER_BYTES;
    if (n > WIRE_MAX_BODY) {
        b->n = mark;
        return QUIRE_INVALID;
    }
    le_store_u32(b->data + mark, (uint32_t)n);
    return QUIRE_OK;
}
