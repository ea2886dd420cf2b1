#include "server/front/body/spec_json.h"

#include "request/fields.h"
#include "server/front/body/json_field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const struct request_field *f, struct quire_value value, char *to, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    if (!json_is(value, QUIRE_NUMBER))
        return api_bad(e, f->name, "must be a number");
    double got = quire_value_double(value);
    if (!isfinite(got) || got < r->low || got > r->high)
        return api_bad(e, f->name, "must be between %g and %g, got %.*s", r->low, r->high, JSON_SHOWN(value));
    const float f32 = (float)got;
    if (f->kind == REQUEST_F64)
        memcpy(to, &got, sizeof got);
    else
        memcpy(to, &f32, sizeof f32);
    return true;
}

/* A value below 0 means 0, if the table allows it for an unsigned field of 32 bits. */
static bool read_whole(const struct request_field *f, struct quire_value value, char *to, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    uint64_t bits;
    if (!json_value_whole(value, f->name, r->least, r->most, &bits, e))
        return false;
    int32_t i32 = (int32_t)bits;
    uint32_t u32 = (int64_t)bits < 0 ? 0 : (uint32_t)bits;
    if (f->kind == REQUEST_U64)
        memcpy(to, &bits, sizeof bits);
    else if (f->kind == REQUEST_U32)
        memcpy(to, &u32, sizeof u32);
    else
        memcpy(to, &i32, sizeof i32);
    return true;
}

static bool read_ids(const struct request_field *f, struct quire_value value, uint32_t vocab_size,
                     struct request_list *out, struct api_error *e)
{
    uint32_t *ids;
    size_t n = quire_value_count(value);
    bool some = f->flags & REQUEST_NOT_EMPTY;
    if (!json_is(value, QUIRE_ARRAY) || (some && n == 0))
        return api_bad(e, f->name, some ? "must be a non-empty array of token ids" : "must be an array of token ids");
    if (n > vocab_size)
        return api_bad(e, f->name, "more than the vocabulary's %u tokens", vocab_size);
    if (!json_field_token_ids(value, f->name, vocab_size, &ids, &n, e))
        return false;
    *out = (struct request_list){ids, (uint32_t)n};
    return true;
}

/* Parses a token id from a key with its quotes. Each id has one spelling, so that no id can occur twice. */
static bool read_id(struct quire_value key, uint32_t vocab_size, uint32_t *out)
{
    const struct quire_value digits = {key.text + 1, key.n - 2};
    bool negative;
    uint64_t id;
    for (size_t i = 0; i < digits.n; i++)
        if (digits.text[i] < '0' || digits.text[i] > '9')
            return false;
    if (quire_value_integer(digits, &negative, &id) != QUIRE_INTEGER || id >= vocab_size ||
        (digits.n > 1 && digits.text[0] == '0'))
        return false;
    *out = (uint32_t)id;
    return true;
}

static bool read_bias(const struct request_field *f, struct quire_value key, struct quire_value value,
                      uint32_t vocab_size, struct request_bias *out, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    double bias = quire_value_double(value);
    if (!read_id(key, vocab_size, &out->id))
        return api_bad(e, f->name, "%.*s is not a token id between 0 and %u", JSON_SHOWN(key), vocab_size - 1);
    if (!(bias >= r->low && bias <= r->high))
        return api_bad(e, f->name, "the bias of %u must be a number between %g and %g", out->id, r->low, r->high);
    out->bias = (float)bias;
    return true;
}

static bool read_biases(const struct request_field *f, struct quire_value map, uint32_t vocab_size,
                        struct request_list *out, struct api_error *e)
{
    struct quire_value key, value;
    uint32_t n = 0;
    if (!json_is(map, QUIRE_OBJECT))
        return api_bad(e, f->name, "must be an object of token ids and numbers");
    struct request_bias *biases = malloc((quire_value_count(map) + 1) * sizeof *biases);
    if (!biases)
        return api_fail(e, 503, f->name, "out_of_memory", "%s: out of memory", f->name);
    while (quire_value_next(&map, &key, &value)) {
        if (!read_bias(f, key, value, vocab_size, &biases[n++], e)) {
            free(biases);
            return false;
        }
    }
    *out = (struct request_list){biases, n};
    return true;
}

static bool read_bytes(const struct request_field *f, struct quire_value value, struct request_list *out,
                       struct api_error *e)
{
    char *text;
    size_t n;
    bool some = f->flags & REQUEST_NOT_EMPTY;
    if (!json_is(value, QUIRE_STRING))
        return api_bad(e, f->name, some ? "must be a non-empty string" : "must be a string");
    if (!json_value_text(value, f->name, &text, &n, e))
        return false;
    if (n > f->range.most || (some && n == 0)) {
        free(text);
        return some && n == 0
                   ? api_bad(e, f->name, "must be a non-empty string")
                   : api_bad(e, f->name, "at most %llu bytes, got %zu", (unsigned long long)f->range.most, n);
    }
    *out = (struct request_list){text, (uint32_t)n};
    return true;
}

static bool read_list(const struct request_field *f, struct quire_value value, uint32_t vocab_size, void *values,
                      struct api_error *e)
{
    struct request_list list;
    bool ok = f->kind == REQUEST_BIASES  ? read_biases(f, value, vocab_size, &list, e)
              : f->kind == REQUEST_BYTES ? read_bytes(f, value, &list, e)
                                         : read_ids(f, value, vocab_size, &list, e);
    if (ok)
        request_field_set_list(f, values, list);
    return ok;
}

static bool read_field(const struct request_field *f, const struct quire_doc *body, uint32_t vocab_size, void *values,
                       struct api_error *e)
{
    struct quire_value value = json_field_get(body, f->name);
    char *to = (char *)values + f->at;
    const bool is_there = true;
    if (!value.n)
        return true;
    if (f->has_at && !request_field_is_list(f))
        memcpy((char *)values + f->has_at, &is_there, sizeof is_there);
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL: return json_value_bool(value, f->name, (bool *)to, e);
    case REQUEST_F32:
    case REQUEST_F64: return read_number(f, value, to, e);
    case REQUEST_U32:
    case REQUEST_I32:
    case REQUEST_U64: return read_whole(f, value, to, e);
    case REQUEST_IDS:
    case REQUEST_BIASES:
    case REQUEST_BYTES: return read_list(f, value, vocab_size, values, e);
    case REQUEST_KEY: break;
    }
    return true;
}

bool spec_json_read_rows(const struct request_layout *layout, void *values, const struct quire_doc *body,
                         uint32_t vocab_size, struct api_error *e)
{
    for (size_t i = 0; i < layout->n_rows; i++)
        if (layout->rows[i].flags & REQUEST_IN_BODY && !read_field(&layout->rows[i], body, vocab_size, values, e))
            return false;
    return true;
}

bool spec_json_read(struct request_spec *spec, const struct quire_doc *body, uint32_t vocab_size, struct api_error *e)
{
    if (!spec_json_read_rows(&request_spec_layout, spec, body, vocab_size, e))
        return false;
    if (spec->top_p == 0) { /* also if it is 0 after the conversion to fp32: only the most likely token remains */
        spec->temperature = 0;
        spec->top_p = 1;
    }
    return true;
}
