#include "server/front/body/spec_json.h"

#include "request/fields.h"
#include "server/front/body/json_field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const struct request_field *f, const json_t *value, float *out, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    bool above = f->flags & REQUEST_ABOVE;
    if (!json_is_number(value))
        return api_bad(e, f->name, "must be a number");
    double got = json_number_value(value);
    /* Compared again as the fp32 that is sent: a tiny top_p must not become 0. */
    float narrow = (float)got;
    if (!isfinite(got) || got < r->low || got > r->high || (above && !(narrow > (float)r->low)))
        return api_bad(e, f->name,
                       above ? "must be above %g and at most %g, got %g" : "must be between %g and %g, got %g", r->low,
                       r->high, got);
    *out = narrow;
    return true;
}

/* Below 0, where the table lets that be said of an unsigned field of 32 bits, means 0. */
static bool read_whole(const struct request_field *f, const json_t *body, char *to, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    int64_t value;
    if (!json_field_i64(body, f->name, r->least, r->most, &value, e))
        return false;
    int32_t i32 = (int32_t)value;
    uint32_t u32 = value < 0 ? 0 : (uint32_t)value;
    if (f->kind == REQUEST_U64)
        memcpy(to, &value, sizeof value);
    else if (f->kind == REQUEST_U32)
        memcpy(to, &u32, sizeof u32);
    else
        memcpy(to, &i32, sizeof i32);
    return true;
}

static bool read_ids(const struct request_field *f, const json_t *value, uint32_t vocab_size, struct request_list *out,
                     struct api_error *e)
{
    uint32_t *ids;
    size_t n;
    bool some = f->flags & REQUEST_NOT_EMPTY;
    if (!json_is_array(value) || (some && json_array_size(value) == 0))
        return api_bad(e, f->name, some ? "must be a non-empty array of token ids" : "must be an array of token ids");
    if (json_array_size(value) > vocab_size)
        return api_bad(e, f->name, "more than the vocabulary's %u tokens", vocab_size);
    if (!json_field_token_ids(value, f->name, vocab_size, &ids, &n, e))
        return false;
    *out = (struct request_list){ids, (uint32_t)n};
    return true;
}

static bool read_bias(const struct request_field *f, const char *key, const json_t *value, uint32_t vocab_size,
                      struct request_bias *out, struct api_error *e)
{
    const struct request_range *r = request_field_body(f);
    /* One spelling per id, so that no id can stand twice. */
    size_t digits = strspn(key, "0123456789");
    uint64_t id = digits > 0 && digits <= 10 ? strtoull(key, NULL, 10) : UINT64_MAX;
    if (key[digits] != '\0' || id >= vocab_size || (digits > 1 && key[0] == '0'))
        return api_bad(e, f->name, "\"%.20s\" is not a token id between 0 and %u", key, vocab_size - 1);
    double bias = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(bias >= r->low && bias <= r->high))
        return api_bad(e, f->name, "the bias of %s must be a number between %g and %g", key, r->low, r->high);
    *out = (struct request_bias){.id = (uint32_t)id, .bias = (float)bias};
    return true;
}

static bool read_biases(const struct request_field *f, json_t *map, uint32_t vocab_size, struct request_list *out,
                        struct api_error *e)
{
    json_t *value;
    const char *key;
    uint32_t n = 0;
    if (!json_is_object(map))
        return api_bad(e, f->name, "must be an object of token ids and numbers");
    struct request_bias *biases = malloc((json_object_size(map) + 1) * sizeof *biases);
    if (!biases)
        return api_fail(e, 503, f->name, "out_of_memory", "%s: out of memory", f->name);
    json_object_foreach(map, key, value)
    {
        if (!read_bias(f, key, value, vocab_size, &biases[n++], e)) {
            free(biases);
            return false;
        }
    }
    *out = (struct request_list){biases, n};
    return true;
}

static bool read_list(const struct request_field *f, json_t *value, uint32_t vocab_size, struct request_spec *spec,
                      struct api_error *e)
{
    struct request_list list;
    bool ok = f->kind == REQUEST_BIASES ? read_biases(f, value, vocab_size, &list, e)
                                        : read_ids(f, value, vocab_size, &list, e);
    if (ok)
        request_field_set_list(f, spec, list);
    return ok;
}

static bool read_field(const struct request_field *f, const json_t *body, uint32_t vocab_size,
                       struct request_spec *spec, struct api_error *e)
{
    json_t *value = json_field_get(body, f->name);
    char *to = (char *)spec + f->at;
    const bool is_there = true;
    if (!value)
        return true;
    if (f->has_at && !request_field_is_list(f))
        memcpy((char *)spec + f->has_at, &is_there, sizeof is_there);
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL: return json_field_bool(body, f->name, (bool *)to, e);
    case REQUEST_F32: return read_number(f, value, (float *)(void *)to, e);
    case REQUEST_U32:
    case REQUEST_I32:
    case REQUEST_U64: return read_whole(f, body, to, e);
    case REQUEST_IDS:
    case REQUEST_BIASES: return read_list(f, value, vocab_size, spec, e);
    case REQUEST_KEY: break;
    }
    return true;
}

bool spec_json_read(struct request_spec *spec, const json_t *body, uint32_t vocab_size, struct api_error *e)
{
    for (size_t i = 0; i < request_n_fields; i++)
        if (request_fields[i].flags & REQUEST_IN_BODY && !read_field(&request_fields[i], body, vocab_size, spec, e))
            return false;
    return true;
}
