/* Tagged fields, which frames and recordings are made of: {u16 tag, with the top bit set when the reader must understand
 * it; u16 zero; u32 length; bytes}, little-endian. Old and new can talk: what is not known and need not be understood
 * is skipped. Any thread.
 */
#ifndef QUIRE_BASE_TAGGED_H
#define QUIRE_BASE_TAGGED_H

#include "base/buffer.h"
#include "base/status.h"

#define TAGGED_HEADER_BYTES 8u
#define TAGGED_MUST 0x8000u

struct tagged {
    uint16_t tag; /* without the bit */
    bool must;
    const uint8_t *value; /* in the body */
    uint32_t n;
};

/* Appends a field's header and room for its n bytes, which the caller fills. NULL: b->failed. */
uint8_t *tagged_put(struct buffer *b, uint16_t tag, bool must, uint32_t n);

/* The next field of a body. 1: *out is set and *cursor moved on; 0: the end; -QUIRE_INVALID: the framing is wrong.
 * what: whose body it is, for the message. */
int tagged_next(const char *what, const uint8_t *bytes, size_t n, size_t *cursor, struct tagged *out,
                struct quire_error *err);

#endif
