/* Single fields of a request's body, with errors that name them. Any thread on its own values. */
#ifndef QUIRE_FRONT_JSON_FIELD_H
#define QUIRE_FRONT_JSON_FIELD_H

#include "base/json.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a key; NULL when it is absent or null. */
json_t *json_field_get(const json_t *object, const char *key);
/* Each takes over what is there, and leaves *out as it was when the key is absent or null. False: e names the field. */
bool json_field_bool(const json_t *body, const char *key, bool *out, struct api_error *e);
bool json_field_string(const json_t *body, const char *key, const char **out, struct api_error *e);
bool json_field_i64(const json_t *body, const char *key, int64_t min, int64_t max, int64_t *out, struct api_error *e);

/* A JSON array of token ids below vocab_size into malloc'd memory. */
bool json_field_token_ids(const json_t *array, const char *name, uint32_t vocab_size, uint32_t **out, size_t *n,
                          struct api_error *e);

#endif
