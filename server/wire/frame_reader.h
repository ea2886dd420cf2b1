/* Bytes of a stream, cut into frames. No I/O: the owner puts in what it read. One thread at a time.
 *
 * Memory grows with the bytes that came, never with what a header promises, and a large buffer is
 * given back once it is empty.
 */
#ifndef QUIRE_SERVER_WIRE_FRAME_READER_H
#define QUIRE_SERVER_WIRE_FRAME_READER_H

#include "server/wire/wire.h"

struct frame_reader {
    struct buffer buffer; /* [start, buffer.n) is not read yet */
    size_t start;
};
void frame_reader_free(struct frame_reader *r);

/* Room for at least n bytes to be read into, or NULL: no memory. Invalidates earlier bodies. */
uint8_t *frame_reader_space(struct frame_reader *r, size_t n);
/* n bytes were written there. */
void frame_reader_added(struct frame_reader *r, size_t n);

/* 1: *header and *body (valid until frame_reader_space()) are the next whole frame, which is
 * thereby consumed; 0: more bytes are needed; -QUIRE_INVALID: no frame can follow, or its body is
 * over max_body. */
int frame_reader_next(struct frame_reader *r, uint32_t max_body, struct wire_header *header, const uint8_t **body,
                      struct quire_error *err);

#endif
