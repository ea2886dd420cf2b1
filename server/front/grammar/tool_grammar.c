#include "server/front/grammar/tool_grammar.h"

#include "server/front/body/json_field.h"
#include "server/front/output/json_out.h"

#include <stdlib.h>

/* A call's text around its arguments, and the text between two calls. begin NULL: calls of the format are not forced. */
static const struct form {
    const char *begin, *middle, *end, *between;
} forms[N_TOOL_FORMATS] = {
    [TOOL_HERMES] = {"<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>", "\n"},
    [TOOL_LLAMA3_JSON] = {"{\"name\": ", ", \"parameters\": ", "}", "; "},
};

/* ---- the text of QUIRE_FORM_TOOLS ----------------------------------------------------------- */

static void put_member(struct buffer *o, const char *key, const char *text)
{
    json_out_text(o, key);
    json_out_raw(o, ":");
    json_out_text(o, text);
}

static void put_begin(struct buffer *o, const char *name, size_t n_name, const struct form *form)
{
    struct buffer begin = {0};
    json_out_raw(&begin, form->begin);
    json_out_string(&begin, name, n_name);
    json_out_raw(&begin, form->middle);
    json_out_raw(o, "\"begin\":");
    json_out_string(o, begin.data, begin.n);
    o->failed |= begin.failed;
    buffer_free(&begin);
}

/* Arguments are an object. A schema that does not say so gets the type, if it does not decide by other means. */
static void put_schema(struct buffer *o, struct quire_value parameters)
{
    static const char *const others[] = {"type", "$ref", "allOf", "anyOf", "oneOf", "enum", "const"};
    bool says = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        says |= quire_value_member(parameters, others[i]).n > 0;
    json_out_raw(o, ",\"schema\":");
    if (says) {
        buffer_append(o, parameters.text, parameters.n);
        return;
    }
    json_out_raw(o, quire_value_count(parameters) > 0 ? "{\"type\":\"object\"," : "{\"type\":\"object\"");
    buffer_append(o, parameters.text + 1, parameters.n - 1);
}

/* Also names the call in messages. */
static bool put_name(struct buffer *o, struct quire_value name, size_t i, const struct form *form, struct api_error *e)
{
    char *text;
    size_t n;
    if (!json_value_text(name, "tools", &text, &n, e))
        return false;
    bool ok = n > 0;
    for (size_t k = 0; k < n; k++)
        ok &= (unsigned char)text[k] >= ' ' && text[k] != 0x7f;
    if (ok) {
        json_out_raw(o, "{\"name\":");
        json_out_string(o, text, n);
        json_out_raw(o, ",");
        put_begin(o, text, n, form);
    }
    free(text);
    return ok || api_bad(e, "tools", "item %zu: function.name is empty or has a control character", i);
}

static bool put_call(struct buffer *o, struct quire_value function, size_t i, const struct form *form,
                     struct api_error *e)
{
    struct quire_value parameters = json_field_member(function, "parameters");
    bool strict = false;
    if (parameters.n && !json_is(parameters, QUIRE_OBJECT))
        return api_bad(e, "tools", "item %zu: function.parameters must be an object", i);
    if (!json_value_bool(json_field_member(function, "strict"), "tools", &strict, e))
        return api_bad(e, "tools", "item %zu: function.strict must be true or false", i);
    if (!put_name(o, quire_value_member(function, "name"), i, form, e))
        return false;
    if (parameters.n)
        put_schema(o, parameters);
    json_out_raw(o, ",");
    put_member(o, "end", form->end);
    json_out_raw(o, "}");
    return true;
}

/* name: of the only function; NULL: all. *first: the index of the first one in tools. */
static bool put_calls(struct buffer *o, struct quire_value tools, const char *name, const struct form *form,
                      uint32_t *first, struct api_error *e)
{
    struct quire_value rest = tools, tool;
    size_t n = 0;
    for (size_t i = 0; quire_value_next(&rest, NULL, &tool); i++) {
        struct quire_value function = quire_value_member(tool, "function");
        if (name && (n > 0 || !quire_value_is(quire_value_member(function, "name"), name)))
            continue;
        if (n++ == 0)
            *first = (uint32_t)i;
        else
            json_out_raw(o, ",");
        if (!put_call(o, function, i, form, e))
            return false;
    }
    return n > 0 || api_bad(e, "tool_choice", "no tool has the name \"%.64s\"", name ? name : "");
}

/* ---- public functions ----------------------------------------------------------------------- */

/* *name: of the function that must be called, malloc'd; NULL: any. */
static bool read_choice(struct quire_value choice, bool *forces, char **name, struct api_error *e)
{
    size_t n;
    *forces = quire_value_is(choice, "required");
    if (!json_is(choice, QUIRE_OBJECT))
        return true;
    *forces = true;
    struct quire_value named = quire_value_member(quire_value_member(choice, "function"), "name");
    if (!quire_value_is(quire_value_member(choice, "type"), "function") || !json_is(named, QUIRE_STRING))
        return api_bad(e, "tool_choice",
                       "must be \"none\", \"auto\", \"required\" or "
                       "{\"type\":\"function\",\"function\":{\"name\":...}}");
    return json_value_text(named, "tool_choice", name, &n, e);
}

static bool set(struct quire_value tools, const char *name, bool is_single, enum tool_format format,
                struct grammar_request **out, struct api_error *e)
{
    const struct form *form = &forms[format];
    const struct quire_grammar_source how = {.form = QUIRE_FORM_TOOLS, .whitespace = QUIRE_WHITESPACE_SPACED};
    struct buffer o = {0};
    uint32_t first = 0;
    json_out_raw(&o, "{\"calls\":[");
    bool ok = put_calls(&o, tools, name, form, &first, e);
    json_out_raw(&o, "],");
    put_member(&o, "between", form->between);
    json_out_raw(&o, is_single || name ? ",\"at_most\":1}" : "}");
    if (ok && !buffer_text(&o))
        ok = api_no_memory(e);
    if (!ok) {
        buffer_free(&o);
        return false;
    }
    ok = grammar_request_set(out, &how, o.data, o.n, "tools", e);
    if (ok)
        (*out)->first_tool = first;
    return ok;
}

bool tool_grammar_read(struct quire_value tools, struct quire_value choice, bool is_single, enum tool_format format,
                       struct grammar_request **out, struct api_error *e)
{
    char *name = NULL;
    bool forces;
    if (!read_choice(choice, &forces, &name, e))
        return false;
    bool ok = !forces;
    if (forces && !tools.n)
        api_bad(e, "tool_choice", "needs tools");
    else if (forces && format == TOOL_NONE)
        api_unsupported(e, "tool_choice",
                        "calls cannot be forced: the format of this model's calls is not known "
                        "(--tool-call-parser)");
    else if (forces && !forms[format].begin)
        api_unsupported(e, "tool_choice", "calls cannot be forced in the format %s", tool_format_name(format));
    else if (forces && *out)
        api_bad(e, "tool_choice", "conflicts with %s: an answer has one form", (*out)->field);
    else if (forces)
        ok = set(tools, name, is_single, format, out, e);
    free(name);
    return ok;
}
