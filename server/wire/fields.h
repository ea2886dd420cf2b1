/* Encodes and decodes tagged fields (base/encoding/tagged.h) from tables. One table describes a frame's body for both
 * directions.
 *
 * A rule gives the offset of a field in the frame's struct. Values are moved with memcpy, so neither the struct nor
 * the body needs any alignment beyond its own. Private to server/wire. Any thread. */
#ifndef QUIRE_SERVER_WIRE_FIELDS_H
#define QUIRE_SERVER_WIRE_FIELDS_H

#include "base/encoding/little_endian.h"
#include "base/encoding/tagged.h"

enum wire_field_kind {
    FIELD_BOOL,  /* 1 byte, 0 or 1 */
    FIELD_32,    /* u32, i32 or the bits of an f32; at most `max` when max is not 0 */
    FIELD_64,    /* u64 or the bits of an f64 */
    FIELD_KEY,   /* 32 bytes inside the struct */
    FIELD_TEXT,  /* const char * and size_t; UTF-8, at most `max` bytes */
    FIELD_BYTES, /* const uint8_t * and size_t; exactly `max` bytes */
    FIELD_WORDS, /* u32 count of elements of `width` words; at most `max` elements */
};

enum { FIELD_REQUIRED = 1, FIELD_MUST = 2 };
#define FIELD_NONE UINT16_MAX

struct wire_field {
    const char *name;
    uint16_t tag;
    uint8_t kind;
    uint8_t flags;
    /* Offset of the value, or of the pointer that the decoder sets. */
    uint16_t at;
    /* Offset of the length or count, or of the bool that says whether a scalar is present. */
    uint16_t count_at;
    /* FIELD_WORDS: offset of the pointer that the encoder reads. FIELD_NONE: the same as `at`. */
    uint16_t host_at;
    uint16_t width;
    uint32_t max;
};

#define FIELD_SCALAR(type, member, tag_, kind_, flags_, max_) \
    {#member, tag_, kind_, flags_, offsetof(type, member), FIELD_NONE, FIELD_NONE, 0, max_}
#define FIELD_OPTIONAL(type, member, tag_, kind_, flags_) \
    {#member, tag_, kind_, flags_, offsetof(type, member), offsetof(type, has_##member), FIELD_NONE, 0, 0}
#define FIELD_SPAN(type, member, tag_, kind_, flags_, max_) \
    {#member, tag_, kind_, flags_, offsetof(type, member), offsetof(type, n_##member), FIELD_NONE, 1, max_}
#define FIELD_COUNT(rules) (sizeof(rules) / sizeof((rules)[0]))

/* One frame: its name, its rules in rising order of tags (at most 64), and a struct with the defaults. */
struct wire_body {
    const char *name;
    const struct wire_field *rules;
    size_t n_rules;
    const void *defaults;
    size_t n_struct;
};

int wire_put_body(struct buffer *b, uint16_t type, uint64_t request, const struct wire_body *body, const void *values);
int wire_get_body(const struct wire_body *body, const uint8_t *bytes, size_t n, void *out, struct quire_error *err);

/* begin appends a header, and end writes the body's length into it. If end fails, it restores b to its state before
 * begin. */
int wire_frame_begin(struct buffer *b, uint16_t type, uint64_t request, size_t *mark);
int wire_frame_end(struct buffer *b, size_t mark);

/* Length of the longest prefix of at most max bytes that is whole UTF-8. */
size_t wire_utf8_prefix(const char *text, size_t n, size_t max);

#endif
