#include "base/encoding/json.h"

#include "base/file.h"

#include <errno.h>
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

/* jansson stops right behind a repeated key, which it quotes only if it is short. */
static void name_repeated_key(const char *text, size_t n_bytes, json_error_t *at)
{
    static const char says[] = "duplicate object key";
    const size_t end = at->position > 0 && (size_t)at->position <= n_bytes ? (size_t)at->position : 0;
    if (strncmp(at->text, says, strlen(says)) != 0 || end < 2 || text[end - 1] != '"')
        return;
    size_t begin = end - 1;
    while (begin > 0 && (text[begin - 1] != '"' || (begin > 1 && text[begin - 2] == '\\')))
        begin--;
    snprintf(at->text, sizeof at->text, "%s '%.*s'", says, (int)(end - 1 - begin < 120 ? end - 1 - begin : 120),
             text + begin);
}

static int parse(const char *text, size_t n_bytes, size_t flags, unsigned max_depth, const char *where, json_t **out,
                 struct quire_error *err)
{
    /* jansson itself stops at 2,048 levels, so neither its parser nor the walk below can overrun a stack. */
    json_error_t at;
    json_t *value = json_loadb(text, n_bytes, JSON_DECODE_ANY | flags, &at);
    *out = NULL;
    if (!value && at.text[0] == '\0') /* jansson describes every fault of the text, but no failed allocation */
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", where);
    if (!value) {
        name_repeated_key(text, n_bytes, &at);
        /* jansson quotes what it could not read; nobody vouched for those bytes. */
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

int quire_json_parse(const char *text, size_t n_bytes, unsigned max_depth, const char *where, json_t **out,
                     struct quire_error *err)
{
    return parse(text, n_bytes, JSON_REJECT_DUPLICATES, max_depth, where, out, err);
}

/* ---- as Python reads it ----------------------------------------------------------------------- */

#define MAX_INTEGER 9223372036854775808.0 /* what is larger, or as large, 64 bits do not hold */
#define PYTHON_MAX_DEPTH 1000u /* about where Python's own reader gives up */

/* Puts an empty array over n >= 3 bytes: a value that no getter of a scalar or an object takes. */
static void put_nothing(char *at, size_t n)
{
    memset(at, ' ', n);
    at[0] = '[';
    at[1] = ']';
}

/* The UTF-16 unit of a \uXXXX that begins at `at`; -1: there is no such escape. */
static int32_t unit_of(const char *at, const char *end)
{
    char digits[5] = "";
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    memcpy(digits, at + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int32_t)strtol(digits, NULL, 16) : -1;
}

/* A string's escapes that Python takes and jansson does not, NUL and halves of surrogate pairs, become U+FFFD. Returns the
 * byte behind the string. */
static char *mend_string(char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at != '\\')
            continue;
        const int32_t unit = unit_of(at, end), next = unit < 0 ? -1 : unit_of(at + 6, end);
        const bool is_high = unit >= 0xd800 && unit <= 0xdbff, is_low = unit >= 0xdc00 && unit <= 0xdfff;
        if (is_high && next >= 0xdc00 && next <= 0xdfff)
            at += 11;
        else if (unit == 0 || is_high || is_low)
            memcpy(at + 2, "fffd", 4);
        else
            at++;
    }
    return at < end ? at + 1 : at;
}

/* How many bytes at `at` are a number of JSON's. */
static size_t number_bytes(const char *at)
{
    const char *const from = at;
    at += *at == '-';
    const size_t n_digits = strspn(at, "0123456789");
    if (n_digits == 0 || (*at == '0' && n_digits > 1))
        return 0;
    at += n_digits;
    if (*at == '.' && strspn(at + 1, "0123456789") > 0)
        at += 1 + strspn(at + 1, "0123456789");
    const size_t sign = (*at == 'e' || *at == 'E') && (at[1] == '+' || at[1] == '-');
    if ((*at == 'e' || *at == 'E') && strspn(at + 1 + sign, "0123456789") > 0)
        at += 1 + sign + strspn(at + 1 + sign, "0123456789");
    return (size_t)(at - from);
}

/* A number of n bytes. An integer that jansson has no room for becomes the real number next to it: its last two digits are
 * none of a double's. 2048.0, which is how Python writes a float without a fraction, becomes 2048. */
static void mend_number(char *at, size_t n)
{
    const bool is_negative = *at == '-';
    const size_t n_digits = strspn(at + is_negative, "0123456789");
    const bool is_integer = n_digits + is_negative == n;
    const size_t n_zeros = at[is_negative + n_digits] == '.' ? strspn(at + is_negative + n_digits + 1, "0") : 0;
    if (is_integer && n_digits < 19)
        return;
    if (n_zeros > 0 && is_negative + n_digits + 1 + n_zeros == n && n_digits < 19)
        memset(at + n - n_zeros - 1, ' ', n_zeros + 1);
    if (isinf(strtod(at, NULL))) {
        put_nothing(at, n);
        return;
    }
    errno = 0;
    if (is_integer && (strtoll(at, NULL, 10), errno == ERANGE))
        memcpy(at + n - 2, "e2", 2);
}

static size_t word_at(const char *at, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((size_t)(end - at) >= strlen(words[i]) && memcmp(at, words[i], strlen(words[i])) == 0)
            return strlen(words[i]);
    return 0;
}

/* Rewrites what Python's json takes and jansson does not, in its place: errors keep their line and column. */
static void mend(char *text, size_t n_bytes)
{
    char *at = text, *const end = text + n_bytes;
    while (at < end) {
        size_t n = word_at(at, end);
        if (*at == '"') {
            at = mend_string(at, end);
        } else if (n > 0) {
            put_nothing(at, n);
            at += n;
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            n = strspn(at, "+-.0123456789eE");
            if (number_bytes(at) == n)
                mend_number(at, n);
            at += n;
        } else {
            at++;
        }
    }
}

int quire_json_parse_python(const char *text, size_t n_bytes, const char *where, json_t **out, struct quire_error *err)
{
    *out = NULL;
    if (n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return quire_fail(err, QUIRE_INVALID, "%s: begins with a byte order mark: save it as UTF-8 without one", where);
    char *copy = malloc(n_bytes + 1);
    if (!copy)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", where);
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    mend(copy, n_bytes);
    int status = parse(copy, n_bytes, 0, PYTHON_MAX_DEPTH, where, out, err);
    free(copy);
    return status;
}

/* ---- files ------------------------------------------------------------------------------------ */

static int read_file(const char *path, size_t max_bytes, bool python, json_t **out, struct quire_error *err)
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
        status = python ? quire_json_parse_python(text.data, text.n, name, out, err)
                        : quire_json_parse(text.data, text.n, 64, name, out, err);
    buffer_free(&text);
    return status;
}

int quire_json_read_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err)
{
    return read_file(path, max_bytes, false, out, err);
}

int quire_json_read_python_file(const char *path, size_t max_bytes, json_t **out, struct quire_error *err)
{
    return read_file(path, max_bytes, true, out, err);
}

/* ---- getters ---------------------------------------------------------------------------------- */

/* The value of key, or NULL when it is absent or null. */
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
    const double real = json_number_value(value);
    if (!json_is_integer(value) && fabs(real) < MAX_INTEGER)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be an integer", where, key);
    const json_int_t got = json_integer_value(value);
    if (!json_is_integer(value) || got < min || got > max)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be between %lld and %lld, got %.19g", where, key,
                          (long long)min, (long long)max, real);
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
    /* No reader here lets \u0000 through, so the string ends where its NUL stands. */
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
