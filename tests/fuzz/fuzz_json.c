/* A request's JSON: the parser accepts what jansson accepts, except for numbers out of range, and returns the same
 * values.
 *
 * The parser of Python's JSON accepts what its other reader accepts (base/encoding/json.h).
 *
 * input: the text
 */
#include "fuzz.h"

#include "base/encoding/json.h"
#include "text/quire_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_string(struct quire_value value, const json_t *same)
{
    char *text;
    size_t n;
    must(quire_value_text(value, &text, &n, NULL) == QUIRE_OK && text[n] == '\0');
    must(n == json_string_length(same) && memcmp(text, json_string_value(same), n) == 0);
    must(quire_value_is(value, text));
    free(text);
}

static void check_number(struct quire_value value, const json_t *same)
{
    bool negative;
    uint64_t magnitude;
    bool whole = quire_value_integer(value, &negative, &magnitude) == QUIRE_INTEGER;
    const double size = fabs(json_number_value(same));
    if (json_is_integer(same))
        must(whole && (negative ? 0 - magnitude : magnitude) == (uint64_t)json_integer_value(same));
    else if (whole) /* 4.0, which jansson reads as a double: exact below 2^53 */
        must(floor(size) == size && (size >= 0x1p53 || magnitude == (uint64_t)size));
    must(quire_value_double(value) == json_number_value(same));
}

/* A value against jansson's. */
static void check(struct quire_value value, const json_t *same)
{
    struct quire_value rest = value, key, item;
    size_t n = 0;
    enum quire_kind kind = quire_value_kind(value);
    must(kind == (json_is_object(same)    ? QUIRE_OBJECT
                  : json_is_array(same)   ? QUIRE_ARRAY
                  : json_is_string(same)  ? QUIRE_STRING
                  : json_is_number(same)  ? QUIRE_NUMBER
                  : json_is_boolean(same) ? QUIRE_BOOL
                                          : QUIRE_NULL));
    if (kind == QUIRE_STRING)
        check_string(value, same);
    if (kind == QUIRE_NUMBER)
        check_number(value, same);
    if (kind == QUIRE_BOOL)
        must((value.text[0] == 't') == json_is_true(same));
    if (kind != QUIRE_ARRAY && kind != QUIRE_OBJECT) {
        must(quire_value_count(value) == 0);
        return;
    }
    for (; quire_value_next(&rest, &key, &item); n++) {
        char *name = NULL;
        size_t n_name;
        must(item.text > value.text && item.text + item.n < value.text + value.n);
        if (key.n) {
            must(quire_value_text(key, &name, &n_name, NULL) == QUIRE_OK);
            must(quire_value_member(value, name).text == item.text);
        }
        check(item, name ? json_object_get(same, name) : json_array_get(same, n));
        free(name);
    }
    must(n == (kind == QUIRE_ARRAY ? json_array_size(same) : json_object_size(same)) && n == quire_value_count(value));
}

/* Every value is in the text, and every call ends. */
static void walk(struct quire_value value)
{
    struct quire_value rest = value, item;
    uint32_t *ids;
    size_t n;
    if (quire_value_kind(value) == QUIRE_ARRAY && quire_value_ids(value, 1000, &ids, &n) == QUIRE_OK) {
        must(n == quire_value_count(value));
        for (size_t i = 0; i < n; i++)
            must(ids[i] < 1000);
        free(ids);
    }
    if (quire_value_kind(value) == QUIRE_NUMBER)
        must(!isnan(quire_value_double(value)));
    if (quire_value_kind(value) == QUIRE_ARRAY || quire_value_kind(value) == QUIRE_OBJECT)
        while (quire_value_next(&rest, NULL, &item)) {
            must(item.n > 0 && item.text > value.text && item.text + item.n < value.text + value.n);
            walk(item);
        }
}

static void check_fields(const struct quire_doc *doc)
{
    struct quire_value rest = quire_doc_root(doc), key, item;
    size_t n;
    if (quire_value_kind(rest) != QUIRE_OBJECT)
        return;
    while (quire_value_next(&rest, &key, &item)) {
        const char *name = quire_doc_text(doc, key, &n);
        struct quire_value found = quire_doc_field(doc, name);
        must(found.text == item.text && found.n == item.n);
    }
}

#define PYTHON_MAX_DEPTH 1000

static void check_python(const char *text, size_t size, bool taken)
{
    struct quire_error err;
    json_t *value = NULL;
    bool pythons = quire_json_is_pythons(text, size, PYTHON_MAX_DEPTH);
    if (taken)
        must(pythons);
    if (!memchr(text, 0, size))
        must(pythons == (quire_json_parse_python(text, size, "file", &value, &err) == QUIRE_OK));
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct quire_error err;
    struct quire_doc *doc;
    json_error_t at;
    bool taken = quire_doc_open(text, size, MAX_DEPTH, "the body", &doc, &err) == QUIRE_OK;
    json_t *same = json_loadb(text, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at);
    bool deep = !taken && strstr(err.text, "levels deep");
    /* jansson 2.14 skips a NUL behind a number. */
    if (same && !deep && !memchr(text, 0, size))
        must(taken);
    if (taken && !same)
        must(json_error_code(&at) == json_error_numeric_overflow || json_error_code(&at) == json_error_null_character);
    if (taken) {
        walk(quire_doc_root(doc));
        check_fields(doc);
    } else {
        must(strncmp(err.text, "the body ", 9) == 0);
    }
    if (taken && same)
        check(quire_doc_root(doc), same);
    check_python(text, size, taken);
    json_decref(same);
    quire_doc_close(doc);
    return 0;
}
