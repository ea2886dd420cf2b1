/* Single fields of a request's body, with errors that name them. Any thread on its own body. */
#ifndef QUIRE_FRONT_JSON_FIELD_H
#define QUIRE_FRONT_JSON_FIELD_H

#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For "%.*s" of a value as written, in errors. */
#define JSON_SHOWN(value) ((value).n > 42 ? 42 : (int)(value).n), (value).text

/* The value of a key; empty when it is absent or null. json_field_member() walks over the object. */
struct quire_value json_field_get(const struct quire_doc *body, const char *key);
struct quire_value json_field_member(struct quire_value object, const char *key);
static inline bool json_is(struct quire_value value, enum quire_kind kind)
{
    return quire_value_kind(value) == kind;
}

/* Each reads a field, and leaves *out unchanged when the key is absent or null. Returns false with an error in e that
 * names the field. Strings belong to the body. */
bool json_field_bool(const struct quire_doc *body, const char *key, bool *out, struct api_error *e);
bool json_field_string(const struct quire_doc *body, const char *key, const char **out, struct api_error *e);
bool json_field_i64(const struct quire_doc *body, const char *key, int64_t min, int64_t max, int64_t *out,
                    struct api_error *e);
/* The same for a value that was already found; below 0, *bits is the two's complement. */
bool json_value_bool(struct quire_value value, const char *name, bool *out, struct api_error *e);
bool json_value_whole(struct quire_value value, const char *name, int64_t min, uint64_t max, uint64_t *bits,
                      struct api_error *e);

/* Returns whether it is an array of values of more than one kind. */
bool json_array_is_mixed(struct quire_value array);

/* The content of a string, malloc'd and NUL-terminated. */
bool json_value_text(struct quire_value string, const char *name, char **out, size_t *n_bytes, struct api_error *e);
/* A JSON array of token ids below vocab_size into malloc'd memory. */
bool json_field_token_ids(struct quire_value array, const char *name, uint32_t vocab_size, uint32_t **out, size_t *n,
                          struct api_error *e);

#endif
