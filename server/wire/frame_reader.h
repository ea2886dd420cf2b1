/* Cuts the bytes of a stream into frames. No I/O: the owner adds the bytes that it read. One thread at a time.
 *
 * Memory grows with the bytes that arrived, never with the length in a header. A large buffer is freed once it is
 * empty. */
#ifndef QUIRE_SERVER_WIRE_FRAME_READER_H
#define QUIRE_SERVER_WIRE_FRAME_READER_H

#include "base/buffer.h"
#include "server/wire/frame.h"

struct frame_reader {
    struct buffer buffer; /* [start, buffer.n) is unread */
    size_t start;
};
void frame_reader_free(struct frame_reader *r);

/* Returns space for at least n bytes, or NULL if memory runs out. Invalidates earlier bodies. */
uint8_t *frame_reader_space(struct frame_reader *r, size_t n);
/* Returns the buffer, for another one with bytes in its place, if no byte in it is unread; otherwise NULL. Invalidates
 * earlier bodies. */
struct buffer *frame_reader_empty(struct frame_reader *r);
/* Reports that n bytes were written to that space. */
void frame_reader_added(struct frame_reader *r, size_t n);

/* Returns 1 if it consumed the next whole frame: *header and *body describe it until frame_reader_space(). Returns 0
 * if more bytes are needed, and -QUIRE_INVALID if the header is invalid or the body is longer than max_body. */
int frame_reader_next(struct frame_reader *r, uint32_t max_body, struct wire_header *header, const uint8_t **body,
                      struct quire_error *err);

#endif
