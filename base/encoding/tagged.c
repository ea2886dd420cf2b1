#include "base/encoding/tagged.h"

#include "base/encoding/little_endian.h"

uint8_t *tagged_put(struct buffer *b, uint16_t tag, bool must, uint32_t n)
{
    uint8_t *p = buffer_reserve(b, TAGGED_HEADER_BYTES + (size_t)n);
    if (!p)
        return NULL;
    le_store_u16(p, tag | (must ? TAGGED_MUST : 0u));
    le_store_u16(p + 2, 0);
    le_store_u32(p + 4, n);
    b->n += TAGGED_HEADER_BYTES + (size_t)n;
    return p + TAGGED_HEADER_BYTES;
}

int tagged_next(const char *what, const uint8_t *bytes, size_t n, size_t *cursor, struct tagged *out,
                struct quire_error *err)
{
    size_t left = n - *cursor;
    if (left == 0)
        return 0;
    if (left < TAGGED_HEADER_BYTES)
        return -quire_fail(err, QUIRE_INVALID, "%s: truncated in a field header", what);
    const uint8_t *p = bytes + *cursor;
    uint16_t raw = le_load_u16(p);
    *out = (struct tagged){.tag = raw & (TAGGED_MUST - 1u),
                           .must = raw & TAGGED_MUST,
                           .value = p + TAGGED_HEADER_BYTES,
                           .n = le_load_u32(p + 4)};
    if (le_load_u16(p + 2) != 0)
        return -quire_fail(err, QUIRE_INVALID, "%s: field %u: bytes 2 and 3 must be zero", what, out->tag);
    if (out->n > left - TAGGED_HEADER_BYTES)
        return -quire_fail(err, QUIRE_INVALID, "%s: field %u: length %u exceeds the %zu bytes left", what, out->tag,
                           out->n, left - TAGGED_HEADER_BYTES);
    *cursor += TAGGED_HEADER_BYTES + out->n;
    return 1;
}
