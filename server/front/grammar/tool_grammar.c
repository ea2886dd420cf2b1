#include "server/front/grammar/tool_grammar.h"

#include "server/front/body/json_field.h"
#include "server/front/output/json_out.h"

#include <stdlib.h>
#include <string.h>

/* How calls are written: `before`, calls with `between` between them, `after`. A call is begin, its name, middle, its
 * arguments and end. */
struct form {
    const char *before, *begin, *middle, *end, *between, *after; /* NULL: empty */
    const char *style; /* of arguments that are not JSON; NULL: JSON */
    const char *numbered; /* the name is followed by middle, a number, and this; NULL: no number */
    const char *trigger; /* what begins calls in free text */
    const char *first, *lead; /* without a trigger: an answer that begins with one of these consists of calls */
    bool quotes; /* the name is a JSON string */
    bool is_single; /* an answer has one call */
};
static const struct form forms[N_TOOL_FORMATS] = {
    [TOOL_HERMES] = {.begin = "<tool_call>\n{\"name\": ",
                     .middle = ", \"arguments\": ",
                     .end = "}\n</tool_call>",
                     .between = "\n",
                     .trigger = "<tool_call>",
                     .quotes = true},
    [TOOL_LLAMA3_JSON] = {.begin = "{\"name\": ",
                          .middle = ", \"parameters\": ",
                          .end = "}",
                          .between = "; ",
                          .first = "{",
                          .lead = "<|python_tag|>",
                          .quotes = true},
    [TOOL_LLAMA4_PYTHONIC] = {.before = "[",
                              .middle = "(",
                              .end = ")",
                              .between = ", ",
                              .after = "]",
                              .style = "python",
                              .first = "[",
                              .lead = "<|python_start|>"},
    [TOOL_PYTHONIC] =
        {.before = "[", .middle = "(", .end = ")", .between = ", ", .after = "]", .style = "python", .first = "["},
    [TOOL_MISTRAL] = {.begin = "[TOOL_CALLS]", .middle = "[ARGS]", .trigger = "[TOOL_CALLS]"},
    [TOOL_QWEN3_CODER] = {.begin = "<tool_call>\n<function=",
                          .middle = ">\n",
                          .end = "</function>\n</tool_call>",
                          .between = "\n",
                          .style = "qwen",
                          .trigger = "<tool_call>"},
    [TOOL_DEEPSEEK_V3] = {.before = "<｜tool▁calls▁begin｜>",
                          .begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                          .middle = "\n```json\n",
                          .end = "\n```<｜tool▁call▁end｜>",
                          .between = "\n",
                          .after = "<｜tool▁calls▁end｜>",
                          .trigger = "<｜tool▁calls▁begin｜>"},
    [TOOL_DEEPSEEK_V31] = {.before = "<｜tool▁calls▁begin｜>",
                           .begin = "<｜tool▁call▁begin｜>",
                           .middle = "<｜tool▁sep｜>",
                           .end = "<｜tool▁call▁end｜>",
                           .after = "<｜tool▁calls▁end｜>",
                           .trigger = "<｜tool▁calls▁begin｜>"},
    [TOOL_GLM45] = {.begin = "<tool_call>",
                    .middle = "\n",
                    .end = "</tool_call>",
                    .between = "\n",
                    .style = "glm",
                    .trigger = "<tool_call>"},
    [TOOL_KIMI_K2] = {.before = "<|tool_calls_section_begin|>",
                      .begin = "<|tool_call_begin|>functions.",
                      .middle = ":",
                      .end = "<|tool_call_end|>",
                      .after = "<|tool_calls_section_end|>",
                      .numbered = "<|tool_call_argument_begin|>",
                      .trigger = "<|tool_calls_section_begin|>"},
    /* The end of the call ends the answer. */
    [TOOL_OPENAI] = {.begin = "<|channel|>commentary to=functions.",
                     .middle = " <|constrain|>json<|message|>",
                     .is_single = true},
};
/* Mistral's older tokenizers, which have no token [ARGS]. */
static const struct form mistral_list = {.before = "[TOOL_CALLS][",
                                         .begin = "{\"name\": ",
                                         .middle = ", \"arguments\": ",
                                         .end = "}",
                                         .between = ", ",
                                         .after = "]",
                                         .trigger = "[TOOL_CALLS]",
                                         .quotes = true};

static bool is_special(const struct special_tags *tags, const char *text)
{
    for (uint32_t i = 0; i < tags->n; i++)
        if (strcmp(tags->texts[i], text) == 0)
            return true;
    return false;
}

static const struct form *form_of(const struct tool_calls *calls)
{
    if (calls->format == TOOL_MISTRAL && !is_special(calls->tags, "[ARGS]"))
        return &mistral_list;
    return &forms[calls->format];
}

/* How the calls of this request are restricted. */
struct task {
    const struct tool_calls *calls;
    const struct form *form;
    const char *name; /* of the only function; NULL: all */
    bool is_free; /* only the arguments of strict functions are restricted */
};

/* ---- the text of QUIRE_FORM_TOOLS ----------------------------------------------------------- */

static void put_member(struct buffer *o, const char *key, const char *text)
{
    json_out_text(o, key);
    json_out_raw(o, ":");
    json_out_text(o, text);
}

/* A member, unless its text is NULL. */
static void put_optional(struct buffer *o, const char *key, const char *text)
{
    if (!text)
        return;
    json_out_raw(o, ",");
    put_member(o, key, text);
}

static void put_begin(struct buffer *o, const char *name, size_t n_name, const struct form *form)
{
    struct buffer begin = {0};
    json_out_raw(&begin, form->begin ? form->begin : "");
    if (form->quotes)
        json_out_string(&begin, name, n_name);
    else
        buffer_append(&begin, name, n_name);
    json_out_raw(&begin, form->middle);
    json_out_raw(o, "\"begin\":");
    json_out_string(o, begin.data, begin.n);
    o->failed |= begin.failed;
    buffer_free(&begin);
}

/* Arguments are an object. A schema without a type gets this type, unless another keyword determines it. */
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

/* Whether a call of the format can have this name: the parser finds where it ends. */
static bool can_write(const struct form *form, const char *name, size_t n)
{
    const bool is_python = form->style && strcmp(form->style, "python") == 0;
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];
        const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!form->quotes && !is_word && !(c == '.' || (c == '-' && !is_python)))
            return false;
        if ((unsigned char)c < ' ' || c == 0x7f)
            return false;
    }
    return n > 0;
}

/* Also names the call in messages. */
static bool put_name(struct buffer *o, struct quire_value name, size_t i, const struct task *t, struct api_error *e)
{
    char *text;
    size_t n;
    if (!json_value_text(name, "tools", &text, &n, e))
        return false;
    const bool ok = can_write(t->form, text, n);
    if (ok) {
        json_out_raw(o, "{\"name\":");
        json_out_string(o, text, n);
        json_out_raw(o, ",");
        put_begin(o, text, n, t->form);
    }
    free(text);
    return ok || api_bad(e, "tools",
                         "item %zu: function.name is empty or has a control character, or one that calls in the "
                         "format %s cannot have",
                         i, tool_format_name(t->calls->format));
}

static bool is_strict(struct quire_value function)
{
    return json_field_member(function, "strict").n > 0 && json_field_member(function, "strict").text[0] == 't';
}

static bool put_call(struct buffer *o, struct quire_value function, size_t i, const struct task *t, struct api_error *e)
{
    struct quire_value parameters = json_field_member(function, "parameters");
    bool strict = false;
    if (parameters.n && !json_is(parameters, QUIRE_OBJECT))
        return api_bad(e, "tools", "item %zu: function.parameters must be an object", i);
    if (!json_value_bool(json_field_member(function, "strict"), "tools", &strict, e))
        return api_bad(e, "tools", "item %zu: function.strict must be true or false", i);
    if (!put_name(o, quire_value_member(function, "name"), i, t, e))
        return false;
    if (t->is_free && !strict)
        json_out_raw(o, ",\"loose\":true");
    else if (parameters.n)
        put_schema(o, parameters);
    put_optional(o, "style", t->form->style);
    put_optional(o, "numbered", t->form->numbered);
    put_optional(o, "end", t->form->end);
    json_out_raw(o, "}");
    return true;
}

/* *first: the index of the first one in tools. */
static bool put_calls(struct buffer *o, const struct task *t, uint32_t *first, struct api_error *e)
{
    struct quire_value rest = t->calls->tools, tool;
    const char *name = t->name;
    size_t n = 0;
    for (size_t i = 0; quire_value_next(&rest, NULL, &tool); i++) {
        struct quire_value function = quire_value_member(tool, "function");
        if (name && (n > 0 || !quire_value_is(quire_value_member(function, "name"), name)))
            continue;
        if (n++ == 0)
            *first = (uint32_t)i;
        else
            json_out_raw(o, ",");
        if (!put_call(o, function, i, t, e))
            return false;
    }
    return n > 0 || api_bad(e, "tool_choice", "no tool has the name \"%.64s\"", name ? name : "");
}

/* The texts of the format that are special tokens of the model. */
static void put_specials(struct buffer *o, const struct special_tags *tags)
{
    if (tags->n == 0)
        return;
    json_out_raw(o, ",\"specials\":{");
    for (uint32_t i = 0; i < tags->n; i++) {
        json_out_raw(o, i > 0 ? "," : "");
        json_out_text(o, tags->texts[i]);
        json_out_raw(o, ":");
        json_out_u64(o, tags->ids[i]);
    }
    json_out_raw(o, "}");
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

static bool set(const struct task *t, struct grammar_request **out, struct api_error *e)
{
    const struct form *form = t->form;
    const struct quire_grammar_source how = {.form = QUIRE_FORM_TOOLS, .whitespace = QUIRE_WHITESPACE_SPACED};
    struct buffer o = {0};
    uint32_t first = 0;
    json_out_raw(&o, "{\"calls\":[");
    bool ok = put_calls(&o, t, &first, e);
    json_out_raw(&o, "]");
    put_specials(&o, t->calls->tags);
    put_optional(&o, "before", form->before);
    put_optional(&o, "between", form->between);
    put_optional(&o, "after", form->after);
    if (t->is_free) {
        put_optional(&o, "trigger", form->trigger ? form->trigger : "");
        put_optional(&o, "first", form->first);
        put_optional(&o, "lead", form->lead);
    }
    json_out_raw(&o, t->calls->is_single || form->is_single || t->name ? ",\"at_most\":1}" : "}");
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

static bool any_is_strict(struct quire_value tools)
{
    struct quire_value tool;
    bool any = false;
    while (tools.n && quire_value_next(&tools, NULL, &tool))
        any |= is_strict(quire_value_member(tool, "function"));
    return any;
}

static bool force(const struct task *t, struct grammar_request **out, struct api_error *e)
{
    if (!t->calls->tools.n)
        return api_bad(e, "tool_choice", "needs tools");
    if (t->calls->format == TOOL_NONE)
        return api_unsupported(e, "tool_choice",
                               "calls cannot be forced: the format of this model's calls is not known "
                               "(--tool-call-parser)");
    if (*out)
        return api_bad(e, "tool_choice", "conflicts with %s: an answer has one form", (*out)->field);
    return set(t, out, e);
}

/* A restriction of the whole answer leaves no calls that could be strict. */
static bool hold_strict(struct task *t, struct grammar_request **out, struct api_error *e)
{
    const enum tool_format format = t->calls->format;
    if (*out || format == TOOL_NONE || !any_is_strict(t->calls->tools))
        return true;
    if (!t->form->trigger && !t->form->first)
        return api_unsupported(
            e, "tools",
            "function.strict: arguments in the format %s are restricted only if tool_choice forces a "
            "call",
            tool_format_name(format));
    t->is_free = true;
    return set(t, out, e);
}

bool tool_grammar_read(const struct tool_calls *calls, struct grammar_request **out, struct api_error *e)
{
    char *name = NULL;
    bool forces;
    if (!read_choice(calls->choice, &forces, &name, e))
        return false;
    struct task task = {.calls = calls, .form = form_of(calls), .name = name};
    const bool ok = forces ? force(&task, out, e) : hold_strict(&task, out, e);
    free(name);
    return ok;
}
