/* The table of a request's fields. A row says all that bodies of the HTTP API, frames, recordings and docs/openapi.json
 * need to know of a field, so that a new one is a member of struct request_spec, a row here, and the place that uses it.
 *
 * tests/request holds docs/openapi.json against the rows. Any thread: the table is constant.
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
    REQUEST_MUST = 2, /* whoever does not know it must refuse the request */
    REQUEST_DRAWS = 4, /* it can change the tokens or what is told of them; implies REQUEST_MUST */
    REQUEST_IN_BODY = 8, /* the HTTP API's generating routes all read it as the row says; else a route makes it */
    REQUEST_PRIVATE = 16, /* not in recordings */
    REQUEST_ABOVE = 32, /* the least value of `range` is not allowed itself */
    REQUEST_NOT_EMPTY = 64, /* a list that is given has items */
    REQUEST_MODELS = 128, /* the checkpoint may have a default of its own */
};

/* Integers up to 64 bits and floats, exactly. */
struct request_range {
    int64_t least;
    uint64_t most;
    double low, high;
};

struct request_field {
    const char *member; /* in frames, and in what is said of them */
    const char *name; /* in the HTTP API, and in what a client is told */
    const char *about; /* in docs/openapi.json; NULL: the name says it */
    uint16_t tag; /* in frames and recordings, for ever */
    uint8_t kind, flags;
    uint16_t at; /* of the value in struct request_spec, or of the pointer */
    uint16_t has_at; /* of the count, or of the bool that says whether it is there; 0: neither */
    struct request_range range; /* what an engine takes of a number; `most` items of a list. All zero: anything */
    struct request_range body; /* what the HTTP API takes, where it is not the same */
};

/* In rising order of tags, at most 64. */
extern const struct request_field request_fields[];
extern const size_t request_n_fields;
/* Of every field. */
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

/* The row of a member; NULL: there is none. */
const struct request_field *request_field_find(const char *member);
/* Of the value, or of one item of a list. */
size_t request_field_bytes(const struct request_field *field);
/* Whether the spec says of a field what is said by default. Fields that are required never are. */
bool request_field_is_default(const struct request_field *field, const struct request_spec *spec);
/* What a body of the HTTP API may say of it. */
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
