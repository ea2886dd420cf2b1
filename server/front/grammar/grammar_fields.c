/* The fields of a body that restrict its answer, as OpenAI, vLLM and llama.cpp name them. */
#include "server/front/body/json_field.h"
#include "server/front/grammar/grammar_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one restriction ------------------------------------------------------------------------ */

enum kind {
    KIND_SCHEMA,  /* an object, or a string that holds one */
    KIND_STRING,
    KIND_GRAMMAR, /* a string, Lark or GBNF */
    KIND_STRINGS, /* a non-empty array of strings */
    KIND_TAG,     /* as KIND_SCHEMA */
    KIND_FLAG,    /* true */
};

struct row {
    const char *name;
    enum kind kind;
    enum quire_grammar_form form;
};

struct place {
    struct grammar_request **out;
    enum quire_grammar_whitespace whitespace;
    const char *field;
    struct api_error *e;
};

static bool set(const struct place *p, enum quire_grammar_form form, char *text, size_t n)
{
    const struct quire_grammar_source how = {.form = form, .whitespace = p->whitespace};
    return grammar_request_set(p->out, &how, text, n, p->field, p->e);
}

static bool set_written(const struct place *p, enum quire_grammar_form form, struct quire_value value)
{
    return set(p, form, strndup(value.text, value.n), value.n);
}

static bool set_string(const struct place *p, enum quire_grammar_form form, struct quire_value value)
{
    char *text;
    size_t n;
    return json_value_text(value, p->field, &text, &n, p->e) && set(p, form, text, n);
}

/* As in vLLM, but a comment does not count: only GBNF writes "::=". */
static bool is_gbnf(const char *text)
{
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n"), code = strcspn(line, "#\n");
        if (memmem(line, code, "::=", 3))
            return true;
        line += n + (line[n] == '\n');
    }
    return false;
}

static bool set_grammar(const struct place *p, struct quire_value value)
{
    char *text;
    size_t n;
    if (!json_value_text(value, p->field, &text, &n, p->e))
        return false;
    return set(p, is_gbnf(text) ? QUIRE_FORM_GBNF : QUIRE_FORM_LARK, text, n);
}

static bool set_strings(const struct place *p, struct quire_value value)
{
    struct quire_value rest = value, item;
    if (!json_is(value, QUIRE_ARRAY) || quire_value_count(value) == 0)
        return api_bad(p->e, p->field, "must be a non-empty array of strings");
    for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++)
        if (!json_is(item, QUIRE_STRING))
            return api_bad(p->e, p->field, "item %zu must be a string", i);
    return set_written(p, QUIRE_FORM_CHOICE, value);
}

static bool set_flag(const struct place *p, enum quire_grammar_form form, struct quire_value value)
{
    bool wanted = false;
    if (!json_value_bool(value, p->field, &wanted, p->e))
        return false;
    return !wanted || set(p, form, strdup("{}"), 2);
}

static bool set_row(const struct place *p, const struct row *row, struct quire_value value)
{
    if (row->kind == KIND_FLAG)
        return set_flag(p, row->form, value);
    if (row->kind == KIND_STRINGS)
        return set_strings(p, value);
    if ((row->kind == KIND_SCHEMA || row->kind == KIND_TAG) && json_is(value, QUIRE_OBJECT))
        return set_written(p, row->form, value);
    if (!json_is(value, QUIRE_STRING))
        return api_bad(p->e, p->field, "must be %s",
                       row->kind == KIND_SCHEMA || row->kind == KIND_TAG ? "an object, or a string that holds one"
                                                                         : "a string");
    return row->kind == KIND_GRAMMAR ? set_grammar(p, value) : set_string(p, row->form, value);
}

/* ---- white space ---------------------------------------------------------------------------- */

/* Compact JSON has no white space, so any pattern that matches nothing is satisfied. These are the usual ones. */
static bool check_pattern(struct quire_value pattern, const char *field, struct api_error *e)
{
    static const char *const known[] = {
        "",       " ?",       "[ ]?",    " *",      "[ ]*",       "\\s?",          "\\s*",      "[\n ]?",
        "[\n ]*", "[\n\t ]*", "[\\n ]?", "[\\n ]*", "[\\n\\t ]*", "[ \\t\\n\\r]*", "[ \t\n\r]*"};
    if (!pattern.n)
        return true;
    if (!json_is(pattern, QUIRE_STRING))
        return api_bad(e, field, "must be a string");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (quire_value_is(pattern, known[i]))
            return true;
    return api_unsupported(e, field, "%.*s is not supported; white space is set by disable_any_whitespace",
                           JSON_SHOWN(pattern));
}

/* vLLM's disable_any_whitespace. */
static bool read_whitespace(struct quire_value object, enum quire_grammar_whitespace *out, struct api_error *e)
{
    struct quire_value value = json_field_member(object, "disable_any_whitespace");
    bool is_disabled = *out != QUIRE_WHITESPACE_FLEXIBLE;
    if (!json_value_bool(value, "structured_outputs.disable_any_whitespace", &is_disabled, e))
        return false;
    if (value.n)
        *out = is_disabled ? QUIRE_WHITESPACE_COMPACT : QUIRE_WHITESPACE_FLEXIBLE;
    return true;
}

/* ---- structured_outputs --------------------------------------------------------------------- */

static const struct row members[] = {
    {"json", KIND_SCHEMA, QUIRE_FORM_JSON_SCHEMA},      {"regex", KIND_STRING, QUIRE_FORM_REGEX},
    {"choice", KIND_STRINGS, QUIRE_FORM_CHOICE},        {"grammar", KIND_GRAMMAR, QUIRE_FORM_LARK},
    {"json_object", KIND_FLAG, QUIRE_FORM_JSON_OBJECT}, {"structural_tag", KIND_TAG, QUIRE_FORM_STRUCTURAL_TAG},
};

/* Sets the restriction if the member is one; *known: it is, or it is an option. */
static bool read_member(struct place *p, struct quire_value key, struct quire_value value, bool *known)
{
    static const char *const options[] = {"disable_any_whitespace", "whitespace_pattern",
                                          "disable_additional_properties"};
    char field[64];
    *known = true;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (quire_value_is(key, options[i]))
            return true;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!quire_value_is(key, members[i].name))
            continue;
        snprintf(field, sizeof field, "structured_outputs.%s", members[i].name);
        p->field = field;
        return set_row(p, &members[i], value);
    }
    *known = false;
    return true;
}

static bool read_structured_outputs(struct quire_value object, struct place *p)
{
    static const char name[] = "structured_outputs";
    struct quire_value rest = object, key, value;
    const struct grammar_request *before = *p->out;
    bool known, closes = false;
    if (!object.n)
        return true;
    if (!json_is(object, QUIRE_OBJECT))
        return api_bad(p->e, name, "must be an object");
    if (!read_whitespace(object, &p->whitespace, p->e) ||
        !check_pattern(json_field_member(object, "whitespace_pattern"), "structured_outputs.whitespace_pattern",
                       p->e) ||
        !json_value_bool(json_field_member(object, "disable_additional_properties"),
                         "structured_outputs.disable_additional_properties", &closes, p->e))
        return false;
    if (closes)
        return api_unsupported(p->e, "structured_outputs.disable_additional_properties",
                               "is not supported: write \"additionalProperties\": false into the schema");
    while (quire_value_next(&rest, &key, &value)) {
        if (json_is(value, QUIRE_NULL))
            continue;
        if (!read_member(p, key, value, &known))
            return false;
        if (!known)
            return api_bad(p->e, name,
                           "has no member %.*s; its members: json, regex, choice, grammar, json_object, "
                           "structural_tag, disable_any_whitespace, whitespace_pattern",
                           JSON_SHOWN(key));
    }
    return *p->out != before ||
           api_bad(p->e, name, "needs one of json, regex, choice, grammar, json_object, structural_tag");
}

/* ---- fields of the body --------------------------------------------------------------------- */

static const struct row fields[] = {
    {"guided_json", KIND_SCHEMA, QUIRE_FORM_JSON_SCHEMA},
    {"guided_regex", KIND_STRING, QUIRE_FORM_REGEX},
    {"guided_choice", KIND_STRINGS, QUIRE_FORM_CHOICE},
    {"guided_grammar", KIND_GRAMMAR, QUIRE_FORM_LARK},
    {"guided_json_object", KIND_FLAG, QUIRE_FORM_JSON_OBJECT},
    {"structural_tag", KIND_TAG, QUIRE_FORM_STRUCTURAL_TAG},
    {"grammar", KIND_GRAMMAR, QUIRE_FORM_GBNF},         /* llama.cpp */
    {"json_schema", KIND_SCHEMA, QUIRE_FORM_JSON_SCHEMA}, /* llama.cpp */
};

/* false, "" and empty lists restrict nothing: clients send them as defaults. */
static bool is_empty(struct quire_value value)
{
    return !value.n || value.text[0] == 'f' || (json_is(value, QUIRE_STRING) && value.n == 2) ||
           (json_is(value, QUIRE_ARRAY) && quire_value_count(value) == 0);
}

bool grammar_request_read(const struct quire_doc *body, enum quire_grammar_whitespace otherwise,
                          struct grammar_request **out, struct api_error *e)
{
    struct place p = {.out = out, .whitespace = otherwise, .e = e};
    if (!check_pattern(json_field_get(body, "guided_whitespace_pattern"), "guided_whitespace_pattern", e) ||
        !read_structured_outputs(json_field_get(body, "structured_outputs"), &p))
        return false;
    p.whitespace = otherwise;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct quire_value value = json_field_get(body, fields[i].name);
        p.field = fields[i].name;
        if (!is_empty(value) && !set_row(&p, &fields[i], value))
            return false;
    }
    return true;
}

/* ---- response_format, text.format, output_format -------------------------------------------- */

/* The schema is one level down in OpenAI's chat API, and a member of the format in its other APIs, in Anthropic's and
 * in llama.cpp's. */
static bool read_json_schema(struct quire_value format, struct place *p)
{
    struct quire_value inner = json_field_member(format, "json_schema"), schema = json_field_member(format, "schema");
    char field[96];
    const char *format_name = p->field;
    bool strict = false;
    const bool is_chat = strcmp(format_name, "response_format") == 0;
    snprintf(field, sizeof field, "%s%s.schema", format_name, inner.n || (is_chat && !schema.n) ? ".json_schema" : "");
    if (inner.n && !json_is(inner, QUIRE_OBJECT))
        return api_bad(p->e, format_name, "json_schema must be an object");
    if (inner.n)
        schema = json_field_member(inner, "schema");
    struct quire_value from = inner.n ? inner : format, name = json_field_member(from, "name");
    if (name.n && !json_is(name, QUIRE_STRING))
        return api_bad(p->e, format_name, "the schema's name must be a string");
    if (!json_value_bool(json_field_member(from, "strict"), format_name, &strict, p->e))
        return false;
    p->field = field;
    if (!json_is(schema, QUIRE_OBJECT))
        return api_bad(p->e, field, schema.n ? "must be an object" : "is missing");
    return set_written(p, QUIRE_FORM_JSON_SCHEMA, schema);
}

static bool read_json_object(struct quire_value format, struct place *p)
{
    if (json_field_member(format, "schema").n) /* llama.cpp */
        return read_json_schema(format, p);
    return set(p, QUIRE_FORM_JSON_OBJECT, strdup("{}"), 2);
}

static bool read_format_grammar(struct quire_value format, struct place *p)
{
    static const struct row row = {"grammar", KIND_GRAMMAR, QUIRE_FORM_LARK};
    char field[96];
    snprintf(field, sizeof field, "%s.grammar", p->field);
    p->field = field;
    return set_row(p, &row, json_field_member(format, "grammar"));
}

bool grammar_request_format(struct quire_value format, const char *field, enum quire_grammar_whitespace otherwise,
                            struct grammar_request **out, struct api_error *e)
{
    struct quire_value type = quire_value_member(format, "type");
    struct place p = {.out = out, .whitespace = otherwise, .field = field, .e = e};
    if (!format.n || quire_value_is(type, "text"))
        return true;
    if (!json_is(type, QUIRE_STRING))
        return api_bad(e, field, "must be an object with a \"type\"");
    if (quire_value_is(type, "json_schema"))
        return read_json_schema(format, &p);
    if (quire_value_is(type, "json_object"))
        return read_json_object(format, &p);
    if (quire_value_is(type, "structural_tag"))
        return set_written(&p, QUIRE_FORM_STRUCTURAL_TAG, format);
    if (quire_value_is(type, "grammar"))
        return read_format_grammar(format, &p);
    return api_bad(e, field,
                   "there is no type %.*s; the types: text, json_object, json_schema, structural_tag, grammar",
                   JSON_SHOWN(type));
}
