/* A frame between a front end and an engine: its header, its types and its limits. No I/O. protocol.md is the
 * specification; it is sufficient to write a client.
 *
 * A frame is a 16-byte little-endian header {u32 length of the body, u16 type, u16 flags, u64 request id} and a body
 * of at most WIRE_MAX_BODY bytes. Bodies are tagged fields {u16 tag, with the top bit set if the reader must
 * understand it; u16 zero; u32 length; bytes}. A reader rejects a frame that has an unknown tag with this bit, and
 * skips an unknown tag without it, so old and new versions work together.
 *
 * encode.h and decode.h make bodies from the structs of records.h and stats_frame.h, and read them. Any thread. */
#ifndef QUIRE_SERVER_WIRE_FRAME_H
#define QUIRE_SERVER_WIRE_FRAME_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1
#define WIRE_HEADER_BYTES 16
#define WIRE_MAX_BODY (32u << 20)
#define WIRE_MAX_HELLO_BODY 4096u /* before HELLO is complete, either side rejects more */
/* No frame of an engine, including its header, is longer than the smallest credit with which a front end begins. */
#define WIRE_MIN_CREDIT 65536u
#define WIRE_MAX_EVENT_BODY (WIRE_MIN_CREDIT - WIRE_HEADER_BYTES)
#define WIRE_MAX_FIELDS 256u /* in one body, including unknown ones */
#define WIRE_MAX_TEXT 1024u /* bytes of any text field; encoders cut longer ones, decoders reject them */
#define WIRE_MAX_EOS 64u
#define WIRE_MAX_TOP 20u
#define WIRE_MAX_TOKEN_RECORD (16u + 8u * WIRE_MAX_TOP)
#define WIRE_MAX_TENANTS 1024u
#define WIRE_MAX_SERVED 1024u /* in one HIT_REPORT */
#define WIRE_MAX_VECTOR 8192u /* numbers; half an event's bytes */

enum wire_type {
    WIRE_HELLO = 1,   /* both ways, first */
    WIRE_SUBMIT = 2,  /* front → engine */
    WIRE_ACCEPT = 3,  /* engine → front */
    WIRE_REFUSE = 4,
    WIRE_TOKENS = 5,  /* generated tokens of one or more choices of one request */
    WIRE_PROMPT_LOGPROBS = 6,
    WIRE_DONE = 7,    /* one choice has finished */
    WIRE_CANCEL = 8,  /* front → engine: a request, or one choice of it */
    WIRE_CREDIT = 9,  /* front → engine: the number of further bytes that it can receive */
    WIRE_CONTROL = 10, /* front → engine: a command; engine → front: it is complete */
    WIRE_STATS = 11,  /* front → engine: a request (empty); engine → front: the figures */
    WIRE_DRAIN = 12,  /* either way: no new requests after this */
    WIRE_ERROR = 13,  /* engine → front: the reason why the connection closes */
    WIRE_VECTOR = 14, /* engine → front: the vector of a request's prompt, before its DONE */
    WIRE_PREDICT = 15, /* front → engine: the expected answer of a live request */
    WIRE_HIT_REPORT = 16, /* front → engine: how often it has served answers that it caches */
};

/* Returns the type's name ("SUBMIT") for messages. Static storage. */
const char *wire_type_name(uint16_t type);

struct wire_header {
    uint32_t body_bytes;
    uint16_t type;
    uint64_t request;
};
/* Returns 1 if it read a header, and 0 if there are fewer than WIRE_HEADER_BYTES. Returns -QUIRE_INVALID for an
 * unknown type, non-zero flags, a body over the limit, a request id on a type that has no request, or a missing one. */
int wire_header_read(const void *bytes, size_t n, struct wire_header *out, struct quire_error *err);

#endif
