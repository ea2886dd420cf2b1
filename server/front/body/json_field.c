#include "server/front/body/json_field.h"

struct quire_value json_field_get(const struct quire_doc *body, const char *key)
{
    struct quire_value value = quire_doc_field(body, key);
    return json_is(value, QUIRE_NULL) ? (struct quire_value){0} : value;
}

struct quire_value json_field_member(struct quire_value object, const char *key)
{
    struct quire_value value = quire_value_member(object, key);
    return json_is(value, QUIRE_NULL) ? (struct quire_value){0} : value;
}

bool json_value_bool(struct quire_value value, const char *name, bool *out, struct api_error *e)
{
    if (value.n && !json_is(value, QUIRE_BOOL))
        return api_bad(e, name, "must be true or false");
    if (value.n)
        *out = value.text[0] == 't';
    return true;
}

bool json_field_bool(const struct quire_doc *body, const char *key, bool *out, struct api_error *e)
{
    return json_value_bool(json_field_get(body, key), key, out, e);
}

bool json_field_string(const struct quire_doc *body, const char *key, const char **out, struct api_error *e)
{
    struct quire_value value = json_field_get(body, key);
    size_t n;
    if (value.n && !json_is(value, QUIRE_STRING))
        return api_bad(e, key, "must be a string");
    if (value.n)
        *out = quire_doc_text(body, value, &n);
    return !value.n || *out || api_fail(e, 503, key, "out_of_memory", "%s: out of memory", key);
}

bool json_value_whole(struct quire_value value, const char *name, int64_t min, uint64_t max, uint64_t *bits,
                      struct api_error *e)
{
    bool negative;
    uint64_t magnitude;
    if (!value.n)
        return true;
    enum quire_integer is = quire_value_integer(value, &negative, &magnitude);
    if (is == QUIRE_NO_INTEGER)
        return api_bad(e, name, "must be an integer");
    uint64_t lowest = min < 0 ? 0 - (uint64_t)min : 0; /* the magnitude of the minimum */
    bool fits = is == QUIRE_INTEGER && (negative ? magnitude <= lowest : magnitude <= max);
    if (!fits || (min > 0 && magnitude < (uint64_t)min))
        return api_bad(e, name, "must be between %lld and %llu, got %.*s", (long long)min, (unsigned long long)max,
                       JSON_SHOWN(value));
    *bits = negative ? 0 - magnitude : magnitude;
    return true;
}

bool json_field_i64(const struct quire_doc *body, const char *key, int64_t min, int64_t max, int64_t *out,
                    struct api_error *e)
{
    uint64_t bits = (uint64_t)*out;
    if (!json_value_whole(json_field_get(body, key), key, min, (uint64_t)max, &bits, e))
        return false;
    *out = (int64_t)bits;
    return true;
}

bool json_array_is_mixed(struct quire_value array)
{
    struct quire_value rest = array, first, item;
    if (!json_is(array, QUIRE_ARRAY) || !quire_value_next(&rest, NULL, &first))
        return false;
    while (quire_value_next(&rest, NULL, &item))
        if (quire_value_kind(item) != quire_value_kind(first))
            return true;
    return false;
}

bool json_value_text(struct quire_value string, const char *name, char **out, size_t *n_bytes, struct api_error *e)
{
    return quire_value_text(string, out, n_bytes, NULL) == QUIRE_OK ||
           api_fail(e, 503, name, "out_of_memory", "%s: out of memory", name);
}

bool json_field_token_ids(struct quire_value array, const char *name, uint32_t vocab_size, uint32_t **out, size_t *n,
                          struct api_error *e)
{
    int status = quire_value_ids(array, vocab_size, out, n);
    if (status == QUIRE_NO_MEMORY)
        return api_fail(e, 503, name, "out_of_memory", "%s: out of memory", name);
    return status == QUIRE_OK || api_bad(e, name, "item %zu must be a token id between 0 and %u", *n, vocab_size - 1);
}
