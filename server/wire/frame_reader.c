#include "server/wire/frame_reader.h"

#include "server/wire/fields.h"

#include <string.h>

#define KEEP_BYTES ((size_t)1 << 20)

void frame_reader_free(struct frame_reader *r)
{
    buffer_free(&r->buffer);
    r->start = 0;
}

uint8_t *frame_reader_space(struct frame_reader *r, size_t n)
{
    struct buffer *b = &r->buffer;
    if (r->start == b->n) {
        r->start = b->n = 0;
        if (b->capacity > KEEP_BYTES)
            buffer_free(b);
    } else if (r->start > b->n / 2) {
        memmove(b->data, b->data + r->start, b->n - r->start);
        b->n -= r->start;
        r->start = 0;
    }
    return buffer_reserve(b, n);
}

struct buffer *frame_reader_empty(struct frame_reader *r)
{
    if (r->start < r->buffer.n)
        return NULL;
    r->start = r->buffer.n = 0;
    return &r->buffer;
}

void frame_reader_added(struct frame_reader *r, size_t n)
{
    r->buffer.n += n;
}

int frame_reader_next(struct frame_reader *r, uint32_t max_body, struct wire_header *header, const uint8_t **body,
                      struct quire_error *err)
{
    size_t left = r->buffer.n - r->start;
    if (left < WIRE_HEADER_BYTES)
        return 0;
    const uint8_t *p = (const uint8_t *)r->buffer.data + r->start;
    int found = wire_header_read(p, left, header, err);
    if (found <= 0)
        return found;
    if (header->body_bytes > max_body)
        return -quire_fail(err, QUIRE_INVALID, "%s: length: at most %u here, got %u", wire_type_name(header->type),
                           max_body, header->body_bytes);
    if (left - WIRE_HEADER_BYTES < header->body_bytes)
        return 0;
    *body = p + WIRE_HEADER_BYTES;
    r->start += WIRE_HEADER_BYTES + header->body_bytes;
    return 1;
}
