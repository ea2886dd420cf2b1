/* Reads the JSON of a request in place.
 *
 * A document is checked once as a whole. Text that is not JSON, is nested too deep or repeats a key is rejected
 * before any value is read. A value is then the piece of text as written. Nothing is built from it, so that a body
 * costs no memory except its own bytes, and numbers keep their digits. Files are read with jansson (base/encoding/json.h).
 *
 * Values borrow from the text, which the caller that opened the document keeps. Every function that takes a value
 * needs one of an open document. A document belongs to one thread at a time. No call prints, aborts or lets a panic
 * out.
 */
#ifndef QUIRE_JSON_H
#define QUIRE_JSON_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct quire_doc;

/* The text of a value without blanks around it. n is 0 if the value does not exist. */
struct quire_value {
    const char *text; /* not NUL-terminated */
    size_t n;
};

enum quire_kind {
    QUIRE_NOTHING,
    QUIRE_NULL,
    QUIRE_BOOL,
    QUIRE_NUMBER,
    QUIRE_STRING,
    QUIRE_ARRAY,
    QUIRE_OBJECT,
};

/* Whether a text is JSON that Python's json module reads, which models have learned to write. Such a document may
 * also contain NaN, Infinity, \u0000, halves of surrogate pairs and duplicate keys in an object. Templates take such
 * JSON as part of a request's messages (quire_text_render()). */
bool quire_json_is_pythons(const char *text, size_t n_bytes, unsigned max_depth);

/* Rejects text that is not one JSON value in UTF-8, \u0000 (except in items of "messages" and "input"), half of a
 * surrogate pair, a duplicate key in an object, more than 65,536 members in an object, and nesting deeper than
 * max_depth: QUIRE_INVALID, and "<what> is not valid JSON: <why> at byte <n>" The caller keeps the text, which must
 * outlive *out. Costs 12 to 24 bytes for each key of the objects that are open at once, and keeps 20 for each
 * outermost one. */
int quire_doc_open(const char *text, size_t n_bytes, unsigned max_depth, const char *what, struct quire_doc **out,
                   struct quire_error *err);
void quire_doc_close(struct quire_doc *doc);

struct quire_value quire_doc_root(const struct quire_doc *doc);
/* A member of the outermost object. */
struct quire_value quire_doc_field(const struct quire_doc *doc, const char *key);
/* The content of a string, NUL-terminated, valid until the document is closed. Returns NULL if memory is short. */
const char *quire_doc_text(const struct quire_doc *doc, struct quire_value string, size_t *n_bytes);

/* The first remaining member of an object or item of an array. `rest` starts as the value itself. Returns false at
 * the end. key (a string as written; empty for an item) may be NULL.
 *     for (struct quire_value rest = array, item; quire_value_next(&rest, NULL, &item);) */
bool quire_value_next(struct quire_value *rest, struct quire_value *key, struct quire_value *value);
/* A member of an object, found by a walk over it; empty if `object` is not an object or lacks the key. */
struct quire_value quire_value_member(struct quire_value object, const char *key);
/* Members or items; 0 for any other value. */
size_t quire_value_count(struct quire_value value);

bool quire_value_says(struct quire_value value, const char *text);
/* Whether it is a string with exactly this content. An escape is longer than its character, so mostly the length
 * decides. */
static inline bool quire_value_is(struct quire_value value, const char *text)
{
    size_t n = strlen(text) + 2;
    return value.n == n ? value.text[0] == '"' && memcmp(value.text + 1, text, n - 2) == 0
                        : value.n > n && quire_value_says(value, text);
}
/* The content of a string, malloc'd and NUL-terminated. Returns QUIRE_NO_MEMORY if memory is short. */
int quire_value_text(struct quire_value string, char **out, size_t *n_bytes, struct quire_error *err);

enum quire_integer { QUIRE_INTEGER, QUIRE_NO_INTEGER, QUIRE_TOO_LARGE };
/* A number without a fraction other than zero, in any notation (4, 4.0, 40e-1): its sign, and as much of it as 64
 * bits hold. The bytes need not be a number of a document. */
enum quire_integer quire_value_integer(struct quire_value value, bool *negative, uint64_t *magnitude);
/* The nearest double, infinite if the number is too large; NaN if the value is not a number. */
double quire_value_double(struct quire_value value);
/* An array of whole numbers below `end`, malloc'd. QUIRE_INVALID: item *n is not one. */
int quire_value_ids(struct quire_value array, uint32_t end, uint32_t **out, size_t *n);

static inline enum quire_kind quire_value_kind(struct quire_value value)
{
    switch (value.n ? value.text[0] : 0) {
    case 0: return QUIRE_NOTHING;
    case 'n': return QUIRE_NULL;
    case 't':
    case 'f': return QUIRE_BOOL;
    case '"': return QUIRE_STRING;
    case '[': return QUIRE_ARRAY;
    case '{': return QUIRE_OBJECT;
    default: return QUIRE_NUMBER;
    }
}

#endif
