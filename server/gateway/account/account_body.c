#include "server/gateway/account/account_body.h"

#include "server/http/http.h"

#include <math.h>
#include <string.h>

#define MAX_BODY_BYTES 65536
#define MAX_NAME 64
#define MAX_DOLLARS 1000000
#define PICO UINT64_C(1000000000000)

static bool invalid(struct api_error *e, const struct quire_error *why)
{
    return api_fail(e, 400, NULL, "invalid_value", "%s", why->text);
}

bool account_body(struct http_exchange *x, const char *const *known, size_t n, json_t **out, struct api_error *e)
{
    size_t n_bytes;
    const char *text = http_body(x, &n_bytes), *key;
    struct quire_error why;
    json_t *value;
    *out = NULL;
    if (n_bytes > MAX_BODY_BYTES)
        return api_fail(e, 413, NULL, "request_too_large", "the body has more than %d bytes", MAX_BODY_BYTES);
    if (!text) {
        *out = json_object();
        return *out ? true : api_no_memory(e);
    }
    if (quire_json_parse(text, n_bytes, 4, "request body", out, &why) != QUIRE_OK)
        return invalid(e, &why);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return api_fail(e, 400, NULL, "invalid_value", "request body: must be an object");
    }
    json_object_foreach(*out, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < n; i++)
            is_known |= strcmp(known[i], key) == 0;
        if (is_known)
            continue;
        api_fail(e, 400, NULL, "invalid_value", "\"%.*s\" is not a field of this request",
                 (int)strspn(key, "abcdefghijklmnopqrstuvwxyz_"), key);
        json_decref(*out);
        *out = NULL;
        return false;
    }
    return true;
}

bool account_is_name(const char *text)
{
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:");
    return n > 0 && n <= MAX_NAME && text[n] == '\0';
}

bool account_body_name(const json_t *body, const char *field, const char **out, struct api_error *e)
{
    struct quire_error why;
    if (quire_json_string(body, "request body", field, out, &why) != QUIRE_OK)
        return invalid(e, &why);
    return account_is_name(*out) ? true
                                 : api_bad(e, field, "must be 1 to %d of the characters A-Z a-z 0-9 - _ . :", MAX_NAME);
}

/* "12.5" as picodollars, exactly: at most seven digits, a point, at most twelve decimals. */
static bool read_text(const char *text, uint64_t *out)
{
    const size_t n_whole = strspn(text, "0123456789"), has_point = text[n_whole] == '.';
    const char *decimals = text + n_whole + has_point;
    const size_t n = strspn(decimals, "0123456789");
    uint64_t whole = 0, part = 0;
    if (n_whole == 0 || n_whole > 7 || decimals[n] || n > 12 || (has_point && n == 0))
        return false;
    for (size_t i = 0; i < n_whole; i++)
        whole = whole * 10 + (uint64_t)(text[i] - '0');
    for (size_t i = 0; i < 12; i++)
        part = part * 10 + (uint64_t)(i < n ? decimals[i] - '0' : 0);
    *out = whole * PICO + part;
    return whole < MAX_DOLLARS || (whole == MAX_DOLLARS && part == 0);
}

bool account_body_dollars(const json_t *body, const char *field, bool *has, uint64_t *out, struct api_error *e)
{
    const json_t *value = json_object_get(body, field);
    *has = value && !json_is_null(value);
    if (!*has)
        return true;
    bool ok = false;
    if (json_is_string(value)) {
        ok = read_text(json_string_value(value), out);
    } else if (json_is_number(value)) {
        const double dollars = json_number_value(value);
        ok = dollars >= 0 && dollars <= MAX_DOLLARS;
        *out = ok ? (uint64_t)llround(dollars * 1e9) * 1000 : 0;
    }
    return ok ? true
              : api_bad(e, field, "must be dollars from 0 to %d with at most twelve decimals, or null", MAX_DOLLARS);
}
