/* Tagged fields, the parts of frames and recordings: {u16 tag, with the top bit set when the reader must understand the
 * field; u16 zero; u32 length; bytes}, little-endian. Old and new programs interoperate: a reader skips unknown fields
 * that it need not understand. Owns nothing. Any thread on its own values. */
#ifndef QUIRE_BASE_ENCODING_TAGGED_H
#define QUIRE_BASE_ENCODING_TAGGED_H

#include "base/buffer.h"
#include "base/status.h"

#define TAGGED_HEADER_BYTES 8u
#define TAGGED_MUST 0x8000u

struct tagged {
    uint16_t tag; /* without the top bit */
    bool must;
    const uint8_t *value; /* points into the body */
    uint32_t n;
};

/* Appends a field's header and space for its n bytes, which the caller fills. On failure returns NULL and sets
 * b->failed. */
uint8_t *tagged_put(struct buffer *b, uint16_t tag, bool must, uint32_t n);

/* Reads the next field of a body. Returns 1 after setting *out and moving *cursor, 0 at the end, and -QUIRE_INVALID if
 * the framing is wrong. `what` names the body in the message. */
int tagged_next(const char *what, const uint8_t *bytes, size_t n, size_t *cursor, struct tagged *out,
                struct quire_error *err);

#endif
