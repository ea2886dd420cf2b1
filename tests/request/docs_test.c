/* The documents match the table: docs/reference/openapi.json for the fields that every generating route reads (type,
 * range, default, description), docs/reference/protocol.md for all (tag, name, kind, bit, maximum of items). */
#include "base/encoding/json.h"
#include "request/fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *token_ids(void)
{
    return json_pack("{s:s}", "$ref", "#/components/schemas/TokenId");
}

static const char *type_of(const struct request_field *f)
{
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL: return "boolean";
    case REQUEST_F32:
    case REQUEST_F64: return "number";
    case REQUEST_BYTES: return "string";
    case REQUEST_IDS: return "array";
    case REQUEST_BIASES: return "object";
    default: return "integer";
    }
}

/* Whole numbers without a point, as they are written there. */
static json_t *number(double value)
{
    return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *default_of(const struct request_field *f)
{
    const char *at = (const char *)&request_defaults + f->at;
    uint32_t u32;
    int32_t i32;
    float f32;
    bool flag;
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL: memcpy(&flag, at, sizeof flag); return json_boolean(flag);
    case REQUEST_F32: memcpy(&f32, at, sizeof f32); return number(f32);
    case REQUEST_U32: memcpy(&u32, at, sizeof u32); return json_integer(u32);
    case REQUEST_I32: memcpy(&i32, at, sizeof i32); return json_integer(i32);
    default: return NULL;
    }
}

static json_t *schema_of(const struct request_field *f)
{
    const struct request_range *r = request_field_body(f);
    json_t *schema = json_pack("{s:[s, s]}", "type", type_of(f), "null");
    if (f->kind == REQUEST_F32) {
        bool above = f->flags & REQUEST_ABOVE && r == &f->range;
        json_object_set_new(schema, above ? "exclusiveMinimum" : "minimum", number(r->low));
        json_object_set_new(schema, "maximum", number(r->high));
    } else if (f->kind == REQUEST_IDS) {
        json_object_set_new(schema, "items", token_ids());
        if (f->flags & REQUEST_NOT_EMPTY)
            json_object_set_new(schema, "minItems", json_integer(1));
    } else if (f->kind == REQUEST_BIASES) {
        json_object_set_new(schema, "propertyNames", json_pack("{s:s}", "pattern", "^(0|[1-9][0-9]{0,9})$"));
        json_object_set_new(
            schema, "additionalProperties",
            json_pack("{s:s, s:o, s:o}", "type", "number", "minimum", number(r->low), "maximum", number(r->high)));
    } else if (f->kind != REQUEST_BOOL && f->kind != REQUEST_BYTES) {
        json_object_set_new(schema, "minimum", json_integer(r->least));
        json_object_set_new(schema, "maximum",
                            r->most > INT64_MAX ? json_real((double)r->most) : json_integer((json_int_t)r->most));
    }
    /* A checkpoint may change the default, and a seed may be absent. */
    json_t *otherwise = f->flags & REQUEST_MODELS || f->has_at ? NULL : default_of(f);
    if (otherwise)
        json_object_set_new(schema, "default", otherwise);
    if (f->about)
        json_object_set_new(schema, "description", json_string(f->about));
    return schema;
}

static void openapi_is_the_table(void **state)
{
    (void)state;
    json_t *doc = json_load_file(QUIRE_SOURCE_DIR "/docs/reference/openapi.json", JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(doc);
    const json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    const json_t *fields = json_object_get(json_object_get(schemas, "Sampling"), "properties");
    assert_true(json_object_size(fields) > request_n_fields);
    int n_wrong = 0;
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        if (!(f->flags & REQUEST_IN_BODY))
            continue;
        json_t *schema = schema_of(f);
        char *text = json_dumps(schema, JSON_PRESERVE_ORDER);
        /* jansson's integers end at 2^63, so both sides use doubles. */
        json_t *expected = json_loads(text, JSON_DECODE_INT_AS_REAL, NULL);
        if (!json_equal(expected, json_object_get(fields, f->name))) {
            print_error("docs/reference/openapi.json, components.schemas.Sampling: \"%s\": %s\n", f->name, text);
            n_wrong++;
        }
        free(text);
        json_decref(expected);
        json_decref(schema);
    }
    json_decref(doc);
    assert_int_equal(n_wrong, 0);
}

/* ---- docs/reference/protocol.md ------------------------------------------------------------------------ */

/* As in the page's second column. */
static void kind_of(const struct request_field *f, char *out, size_t size)
{
    static const char *const names[] = {"bool", "u32", "i32", "u64", "f32", "key", "u32[]", "pair[]", "bytes", "f64"};
    char most[32] = "";
    if (request_field_is_list(f) && !(f->flags & REQUEST_REQUIRED)) {
        unsigned n = (unsigned)f->range.most;
        if (n >= 1000000)
            snprintf(most, sizeof most, ", at most %u,%03u,%03u", n / 1000000, n / 1000 % 1000, n % 1000);
        else
            snprintf(most, sizeof most, ", at most %u,%03u", n / 1000, n % 1000);
    }
    snprintf(out, size, "%s%s%s", names[f->kind], most, f->flags & REQUEST_MUST ? ", must" : "");
}

static void default_of_frame(const struct request_field *f, char *out, size_t size)
{
    json_t *value = request_field_is_list(f) || f->has_at || f->kind == REQUEST_KEY ? NULL : default_of(f);
    const char *word = f->flags & REQUEST_REQUIRED ? "required"
                       : request_field_is_list(f)  ? "empty"
                       : f->kind == REQUEST_KEY    ? "zeros"
                       : f->has_at                 ? "absent"
                                                   : "0";
    if (f->flags & REQUEST_REQUIRED || !value || json_is_boolean(value))
        snprintf(out, size, "%s", word);
    else if (f->kind == REQUEST_F32)
        snprintf(out, size, "%.1f", json_number_value(value));
    else
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    json_decref(value);
}

static void the_protocol_is_the_table(void **state)
{
    (void)state;
    FILE *file = fopen(QUIRE_SOURCE_DIR "/docs/reference/protocol.md", "r");
    assert_non_null(file);
    char line[4096];
    while (fgets(line, sizeof line, file) && strcmp(line, "### SUBMIT\n") != 0) {
    }
    size_t n_rows = 0;
    while (fgets(line, sizeof line, file) && line[0] != '#') {
        char want[256], kind[128], usual[32];
        if (line[0] != '|' || line[2] < '0' || line[2] > '9')
            continue;
        assert_true(n_rows < request_n_fields);
        const struct request_field *f = &request_fields[n_rows++];
        kind_of(f, kind, sizeof kind);
        default_of_frame(f, usual, sizeof usual);
        snprintf(want, sizeof want, "| %u | %s | %s | %s |", f->tag, f->member, kind, usual);
        if (strncmp(line, want, strlen(want)) != 0)
            fail_msg("docs/reference/protocol.md, SUBMIT: %swants: %s", line, want);
    }
    fclose(file);
    assert_int_equal(n_rows, request_n_fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openapi_is_the_table),
        cmocka_unit_test(the_protocol_is_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
