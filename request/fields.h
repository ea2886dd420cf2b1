/* The table of a request's fields. A row holds everything that HTTP bodies, frames, recordings and openapi.json
 * need to know about a field. The rows are in rows.h.
 *
 * tests/request compares openapi.json with the rows. The table is constant; any thread may read it.
 */
#ifndef QUIRE_REQUEST_FIELDS_H
#define QUIRE_REQUEST_FIELDS_H

#include "request/spec.h"

#include <string.h>

enum request_kind {
    REQUEST_BOOL,
    REQUEST_U32,
    REQUEST_I32,
    REQUEST_U64,
    REQUEST_F32,
    REQUEST_KEY, /* 32 bytes */
    REQUEST_IDS, /* u32s: pointer and count */
    REQUEST_BIASES, /* pairs of id and f32 */
    REQUEST_BYTES, /* pointer and count, of any content */
    REQUEST_F64,
};

enum request_flags {
    REQUEST_REQUIRED = 1,
    REQUEST_MUST = 2, /* a program that does not know the field must reject the request */
    REQUEST_DRAWS = 4, /* the field can change the tokens, or what is reported about them; implies REQUEST_MUST */
    /* all generating routes of the HTTP API read it as the row says; without it, a route reads it itself */
    REQUEST_IN_BODY = 8,
    REQUEST_PRIVATE = 16, /* not in recordings */
    REQUEST_ABOVE = 32, /* the lower bound itself is not allowed */
    REQUEST_NOT_EMPTY = 64, /* a list must have items if it is present */
    REQUEST_MODELS = 128, /* the checkpoint may set its own default */
    REQUEST_OLD = 256, /* read from the bytes of older programs, never written */
};

/* Integers up to 64 bits and floats, without rounding. */
struct request_range {
    int64_t least;
    uint64_t most;
    double low, high;
};

struct request_field {
    const char *member; /* name in frames and in errors about them */
    const char *name; /* name in the HTTP API and in errors to clients */
    const char *about; /* description in openapi.json; NULL: the name is enough */
    uint16_t tag; /* in frames and recordings; never changes */
    uint8_t kind;
    uint16_t flags;
    uint16_t at; /* offset of the value in struct request_spec, or of the pointer */
    uint16_t has_at; /* offset of the count, or of the bool that marks presence; 0: neither */
    struct request_range range; /* range that an engine accepts; for lists, `most` items; all zero: no limit */
    struct request_range body; /* range that the HTTP API accepts, if it differs */
};

/* In ascending order of tags, at most 64. */
extern const struct request_field request_fields[];
extern const size_t request_n_fields;
/* The default of every field. */
extern const struct request_spec request_defaults;

/* Rows over any struct: a request's are one such table, the sections of recordings (engine/record/sections.h) another. */
struct request_layout {
    const struct request_field
        *rows; /* in rising order of tags, at most 64; `at` and `has_at` are offsets in the struct */
    size_t n_rows;
    const void *defaults; /* a whole struct */
    size_t struct_bytes;
};
extern const struct request_layout request_spec_layout; /* request_fields, of a struct request_spec */

/* Returns the row of a member, or NULL. */
const struct request_field *request_field_find(const char *member);
/* Size of the value, or of one item of a list. */
size_t request_field_bytes(const struct request_field *field);
/* Returns whether the field has its default value in the spec. Required fields never do. */
bool request_field_is_default(const struct request_field *field, const struct request_spec *spec);
/* The range that a body of the HTTP API may use. */
const struct request_range *request_field_body(const struct request_field *field);
/* The same as request_field_is_default(), for a struct of the table. */
bool request_layout_is_default(const struct request_layout *layout, const struct request_field *field,
                               const void *values);

struct request_list {
    const void *items;
    uint32_t n;
};
static inline bool request_field_is_list(const struct request_field *field)
{
    return field->kind >= REQUEST_IDS && field->kind <= REQUEST_BYTES;
}
/* values: the struct that the row's table describes. */
static inline struct request_list request_field_list(const struct request_field *field, const void *values)
{
    struct request_list list;
    memcpy(&list.items, (const char *)values + field->at, sizeof list.items);
    memcpy(&list.n, (const char *)values + field->has_at, sizeof list.n);
    return list;
}
void request_field_set_list(const struct request_field *field, void *values, struct request_list list);

/* What the functions of spec.h do, for a struct of any table. Members without a row stay as they are, and copy() copies
 * them. Lists are owned as a spec's. */
void request_layout_default(const struct request_layout *layout, void *values);
void request_layout_free(const struct request_layout *layout, void *values);
int request_layout_copy(const struct request_layout *layout, void *to, const void *from, struct quire_error *err);
/* QUIRE_INVALID names the first field out of its range. */
int request_layout_check(const struct request_layout *layout, const void *values, uint32_t n_vocab,
                         struct quire_error *err);

#endif
