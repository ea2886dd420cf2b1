#include "base/json.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool deeper_than(const json_t *value, unsigned max_depth)
{
    const char *key;
    json_t *child;
    size_t i;
    if (!json_is_object(value) && !json_is_array(value))
        return false;
    if (max_depth == 0)
        return true;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, child)
        {
            if (deeper_than(child, max_depth - 1))
                return true;
        }
    } else {
        json_array_foreach(value, i, child)
        {
            if (deeper_than(child, max_depth - 1))
                return true;
        }
    }
    return false;
}

int quire_json_parse(const char *text, size_t n_bytes, unsigned max_depth, const char *where, json_t **out,
                     struct quire_error *err)
{
    /* jansson stops at 2,048 levels, so neither its parser nor the walk below can overflow a stack. */
    json_error_t at;
    json_t *value = json_loadb(text, n_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at);
    *out = NULL;
    if (!value) {
        /* jansson's message quotes input that it could not parse. Those bytes are untrusted. */
        for (char *c = at.text; *c; c++)
            if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
                *c = '?';
        return quire_fail(err, QUIRE_INVALID, "%s: not valid JSON: %s (line %d, column %d)", where, at.text, at.line,
                          at.column);
    }
    if (deeper_than(value, max_depth)) {
        json_decref(value);
        return quire_fail(err, QUIRE_INVALID, "%s: nested more than %u levels deep", where, max_depth);
    }
    *out = value;
    return QUIRE_OK;
}

int quire_json_read_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    *out = NULL;

    FILE *file = fopen(path, "rb");
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", name);
    struct buffer text = {0};
    int status = buffer_read(&text, file, max_bytes, name, err);
    fclose(file);
    if (status == QUIRE_OK)
        status = quire_json_parse(text.data, text.n, 64, name, out, err);
    buffer_free(&text);
    return status;
}

/* Returns the value of key, or NULL if it is absent or null. */
static json_t *present(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

int quire_json_i64(const json_t *object, const char *where, const char *key, int64_t min, int64_t max, int64_t *out,
                   struct quire_error *err)
{
    const json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    if (!json_is_integer(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be an integer", where, key);
    json_int_t got = json_integer_value(value);
    if (got < min || got > max)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be between %lld and %lld, got %lld", where, key,
                          (long long)min, (long long)max, (long long)got);
    *out = got;
    return QUIRE_OK;
}

int quire_json_u32(const json_t *object, const char *where, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                   struct quire_error *err)
{
    int64_t value = *out;
    int status = quire_json_i64(object, where, key, min, max, &value, err);
    if (status == QUIRE_OK)
        *out = (uint32_t)value;
    return status;
}

int quire_json_f64(const json_t *object, const char *where, const char *key, double min, double max, double *out,
                   struct quire_error *err)
{
    const json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    if (!json_is_number(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a number", where, key);
    double got = json_number_value(value);
    if (!isfinite(got) || got < min || got > max)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be between %g and %g, got %g", where, key, min, max, got);
    *out = got;
    return QUIRE_OK;
}

int quire_json_bool(const json_t *object, const char *where, const char *key, bool *out, struct quire_error *err)
{
    const json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    if (!json_is_boolean(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be true or false", where, key);
    *out = json_is_true(value);
    return QUIRE_OK;
}

int quire_json_string(const json_t *object, const char *where, const char *key, const char **out,
                      struct quire_error *err)
{
    const json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    /* jansson rejects \u0000, so the string ends at its NUL. */
    if (!json_is_string(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a string", where, key);
    *out = json_string_value(value);
    return QUIRE_OK;
}

int quire_json_array(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err)
{
    json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    if (!json_is_array(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be an array", where, key);
    *out = value;
    return QUIRE_OK;
}

int quire_json_object(const json_t *object, const char *where, const char *key, json_t **out, struct quire_error *err)
{
    json_t *value = present(object, key);
    if (!value)
        return QUIRE_OK;
    if (!json_is_object(value))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be an object", where, key);
    *out = value;
    return QUIRE_OK;
}
