/* JSON by jansson, with errors that name the file and the field.
 *
 * The getters are for files and requests nobody vouched for: a wrong type is QUIRE_INVALID with
 * "<where>: <key>: must be …". A key that is absent or null leaves *out as it was and is QUIRE_OK,
 * so that a default is written before the call. No global state; any thread on its own values.
 */
#ifndef QUIRE_BASE_ENCODING_JSON_H
#define QUIRE_BASE_ENCODING_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses one JSON value of any kind. Refuses bytes that are not UTF-8, duplicate keys, trailing
 * text, and nesting deeper than max_depth. `where` begins the error text ("request body"). The
 * caller owns *out (json_decref). QUIRE_NO_MEMORY; if jansson fails to allocate a string, it reports invalid JSON instead. */
int quire_json_parse(const char *text, size_t n_bytes, unsigned max_depth, const char *where, json_t **out,
                     struct quire_error *err);

/* Parses what Python wrote to disk, as its json module reads it: NaN, Infinity and numbers of any length are numbers, the
 * last of repeated keys counts, 2048.0 is the integer it equals, and strings may have \u0000 and halves of surrogate pairs, which become U+FFFD. An integer
 * past 64 bits becomes the nearest double. What no double holds becomes an empty array: a getter that asks for that field
 * refuses it, and the others never see it. Depth 1,000. */
int quire_json_parse_python(const char *text, size_t n_bytes, const char *where, json_t **out, struct quire_error *err);

/* Reads and parses a file of at most max_bytes (depth 64). QUIRE_NOT_FOUND when there is none. The error
 * begins with the file's base name. */
int quire_json_read_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err);
/* The same by quire_json_parse_python(). */
int quire_json_read_python_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err);

int quire_json_u32(const json_t *object, const char *where, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                   struct quire_error *err);
int quire_json_i64(const json_t *object, const char *where, const char *key, int64_t min, int64_t max, int64_t *out,
                   struct quire_error *err);
/* An integer or real that is finite and lies in [min, max]. */
int quire_json_f64(const json_t *object, const char *where, const char *key, double min, double max, double *out,
                   struct quire_error *err);
int quire_json_bool(const json_t *object, const char *where, const char *key, bool *out, struct quire_error *err);
/* Borrowed from object. A string with an embedded NUL is refused. */
int quire_json_string(const json_t *object, const char *where, const char *key, const char **out,
                      struct quire_error *err);
/* Borrowed; *out stays as it was when absent. */
int quire_json_array(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err);
int quire_json_object(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err);

#endif
