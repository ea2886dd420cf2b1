#include "server/front/body/json_field.h"

#include <stdlib.h>

json_t *json_field_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bool json_field_bool(const json_t *body, const char *key, bool *out, struct api_error *e)
{
    const json_t *value = json_field_get(body, key);
    if (value && !json_is_boolean(value))
        return api_bad(e, key, "must be true or false");
    if (value)
        *out = json_is_true(value);
    return true;
}

bool json_field_string(const json_t *body, const char *key, const char **out, struct api_error *e)
{
    const json_t *value = json_field_get(body, key);
    if (value && !json_is_string(value))
        return api_bad(e, key, "must be a string");
    if (value)
        *out = json_string_value(value);
    return true;
}

bool json_field_i64(const json_t *body, const char *key, int64_t min, int64_t max, int64_t *out, struct api_error *e)
{
    const json_t *value = json_field_get(body, key);
    if (!value)
        return true;
    if (!json_is_integer(value))
        return api_bad(e, key, "must be an integer");
    json_int_t got = json_integer_value(value);
    if (got < min || got > max)
        return api_bad(e, key, "must be between %lld and %lld, got %lld", (long long)min, (long long)max,
                       (long long)got);
    *out = got;
    return true;
}

bool json_field_token_ids(const json_t *array, const char *name, uint32_t vocab_size, uint32_t **out, size_t *n,
                          struct api_error *e)
{
    size_t n_ids = json_array_size(array);
    *out = NULL;
    *n = 0;
    uint32_t *ids = malloc(n_ids ? n_ids * sizeof *ids : 1);
    if (!ids)
        return api_fail(e, 503, name, "out_of_memory", "%s: out of memory", name);
    for (size_t i = 0; i < n_ids; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= (json_int_t)vocab_size) {
            free(ids);
            return api_bad(e, name, "item %zu must be a token id between 0 and %u", i, vocab_size - 1);
        }
        ids[i] = (uint32_t)id;
    }
    *out = ids;
    *n = n_ids;
    return true;
}
