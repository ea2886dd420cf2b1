/* JSON by jansson, with errors that name the file and the field.
 *
 * The getters read untrusted files and requests. A wrong type is QUIRE_INVALID with "<where>: <key>: must be …". If a
 * key is absent or null, the getter leaves *out unchanged and returns QUIRE_OK, so the caller writes the default before
 * the call. No global state; any thread on its own values.
 */
#ifndef QUIRE_BASE_JSON_H
#define QUIRE_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses one JSON value of any kind. Rejects bytes that are not UTF-8, duplicate keys, trailing text, and nesting
 * deeper than max_depth. `where` starts the error message ("request body"). The caller owns *out (json_decref). */
int quire_json_parse(const char *text, size_t n_bytes, unsigned max_depth, const char *where, json_t **out,
                     struct quire_error *err);

/* Reads and parses a file of at most max_bytes (depth 64). Returns QUIRE_NOT_FOUND if the file cannot be opened. The
 * error starts with the file's base name. */
int quire_json_read_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err);

int quire_json_u32(const json_t *object, const char *where, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                   struct quire_error *err);
int quire_json_i64(const json_t *object, const char *where, const char *key, int64_t min, int64_t max, int64_t *out,
                   struct quire_error *err);
/* Reads an integer or real that is finite and lies in [min, max]. */
int quire_json_f64(const json_t *object, const char *where, const char *key, double min, double max, double *out,
                   struct quire_error *err);
int quire_json_bool(const json_t *object, const char *where, const char *key, bool *out, struct quire_error *err);
/* *out is borrowed from object. Rejects a string that contains a NUL. */
int quire_json_string(const json_t *object, const char *where, const char *key, const char **out,
                      struct quire_error *err);
/* *out is borrowed from object. */
int quire_json_array(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err);
int quire_json_object(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err);

#endif
