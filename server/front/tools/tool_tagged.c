/* Calls with a tag for each argument, whose values are not JSON. The request's tools say which are strings. */
#include "server/front/output/json_out.h"
#include "server/front/tools/tool_work.h"

#include <string.h>

/* A tool with more arguments has the rest looked up no more: each walks over all. */
#define MAX_LOOKUPS 256
#define VALUE_DEPTH 120

/* The tags of a format. An argument is: open KEY shut, between if any, VALUE close. */
struct tags {
    const char *open, *shut, *between, *close;
    const char *body_end; /* behind the arguments; NULL: the end of the call */
    bool guesses; /* a value of unknown type is JSON if it can be; otherwise a string */
    bool breaks; /* a line break after and before the tags of a value does not belong to it */
};
static const struct tags qwen_tags = {"<parameter=", ">", NULL, "</parameter>", "</function>", false, true};
static const struct tags glm_tags = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", NULL, true, false};

static const struct tags *tags_of(const struct tool_parser *p)
{
    return p->format == TOOL_GLM45 ? &glm_tags : &qwen_tags;
}

/* ---- the types of arguments ---- */

static struct quire_value function_named(struct quire_value tools, const char *name, size_t n)
{
    struct quire_value rest = tools, tool;
    char text[TOOL_MAX_HEAD + 1];
    memcpy(text, name, n);
    text[n] = '\0';
    while (quire_value_kind(tools) == QUIRE_ARRAY && quire_value_next(&rest, NULL, &tool)) {
        struct quire_value function = quire_value_member(tool, "function");
        if (!function.n)
            function = tool; /* other APIs do not nest it */
        if (quire_value_is(quire_value_member(function, "name"), text))
            return function;
    }
    return (struct quire_value){0};
}

static struct quire_value properties_of(struct quire_value function)
{
    struct quire_value schema = quire_value_member(function, "parameters");
    if (!schema.n)
        schema = quire_value_member(function, "input_schema");
    return quire_value_member(schema, "properties");
}

/* Whether a value of this schema is a string. */
static bool is_string(struct quire_value schema, bool otherwise)
{
    struct quire_value type = quire_value_member(schema, "type"), item;
    if (quire_value_kind(type) == QUIRE_STRING)
        return quire_value_is(type, "string");
    if (quire_value_kind(type) == QUIRE_ARRAY) {
        while (quire_value_next(&type, NULL, &item))
            if (quire_value_is(item, "string"))
                return true;
        return false;
    }
    struct quire_value choices = quire_value_member(schema, "enum");
    if (quire_value_kind(choices) == QUIRE_ARRAY && quire_value_next(&choices, NULL, &item))
        return quire_value_kind(item) == QUIRE_STRING;
    return quire_value_count(schema) == 0 && otherwise;
}

static bool key_is_string(const struct tool_parser *p, const char *key, size_t n)
{
    struct tool_tagged *t = p->work->tagged;
    const bool otherwise = !tags_of(p)->guesses;
    char text[TOOL_MAX_HEAD + 1];
    if (t->n_lookups++ >= MAX_LOOKUPS)
        return otherwise;
    memcpy(text, key, n);
    text[n] = '\0';
    struct quire_value schema = quire_value_member(t->properties, text);
    return schema.n ? is_string(schema, otherwise) : otherwise;
}

/* ---- heads ---- */

enum head_step { HEAD_OK, HEAD_WAITS, HEAD_FAILS };

static enum head_step of_match(enum tool_match match, bool open)
{
    if (match == TOOL_MATCH_ALL)
        return HEAD_OK;
    return match == TOOL_MATCH_SOME && open ? HEAD_WAITS : HEAD_FAILS;
}

/* Finds a word behind *at in the first n bytes, and moves there. */
static enum head_step find(const char *text, size_t n, bool open, const char *word, size_t *at)
{
    const char *found = n > *at ? memmem(text + *at, n - *at, word, strlen(word)) : NULL;
    if (!found)
        return open ? HEAD_WAITS : HEAD_FAILS;
    *at = (size_t)(found - text);
    return HEAD_OK;
}

static bool is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || memchr("<>{}\"'", text[i], 6))
            return false;
    return n > 0;
}

/* Whether arguments begin here, or the end of a call without any. */
static enum head_step body_begins(const struct tool_parser *p, const char *text, size_t n, bool open, size_t at)
{
    const struct tags *tags = tags_of(p);
    const char *const words[] = {tags->open, tags->body_end, tool_form(p->format)->end};
    enum head_step best = HEAD_FAILS;
    at = tool_skip_blank(text, n, at);
    for (size_t i = 0; i < sizeof words / sizeof *words && best != HEAD_OK; i++) {
        const enum head_step step = words[i] ? of_match(tool_match(text, n, at, words[i]), open) : HEAD_FAILS;
        if (step != HEAD_FAILS)
            best = step;
    }
    return best;
}

/* The name: qwen's behind <function=, with or without <tool_call> before it; glm's behind <tool_call>. *at: behind
 * it. */
static enum head_step read_name(const struct tool_parser *p, const char *text, size_t n, bool open,
                                struct tool_call *call, size_t *at)
{
    const struct tool_form *form = tool_form(p->format);
    enum head_step step = HEAD_OK;
    const bool tag = tool_match(text, n, 0, form->begins[0]) == TOOL_MATCH_ALL;
    *at = tool_skip_blank(text, n, tag ? strlen(form->begins[0]) : 0);
    if (form->begins[1]) {
        step = of_match(tool_match(text, n, *at, form->begins[1]), open);
        *at += strlen(form->begins[1]);
    }
    if (step != HEAD_OK)
        return step;
    call->name = text + *at;
    if (form->begins[1]) {
        step = find(text, n, open, ">", at);
    } else {
        while (*at < n && text[*at] != '\n' && text[*at] != '<')
            (*at)++;
        step = *at < n ? HEAD_OK : open ? HEAD_WAITS : HEAD_FAILS;
    }
    if (step != HEAD_OK)
        return step;
    call->n_name = (size_t)(text + *at - call->name);
    *at += form->begins[1] != NULL;
    while (call->n_name > 0 && tool_is_blank(call->name[call->n_name - 1]))
        call->n_name--;
    return is_name(call->name, call->n_name) ? HEAD_OK : HEAD_FAILS;
}

bool tool_tagged_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const char *text = w->held.data;
    const size_t n = w->held.n < TOOL_MAX_HEAD ? w->held.n : TOOL_MAX_HEAD;
    const bool open = !over && n < TOOL_MAX_HEAD;
    struct tool_call call = {0};
    size_t at;
    enum head_step step = read_name(p, text, n, open, &call, &at);
    if (step == HEAD_OK)
        step = body_begins(p, text, n, open, at);
    if (step == HEAD_WAITS)
        return false;
    if (step == HEAD_FAILS) {
        const char *const *begins = tool_form(p->format)->begins;
        tool_give_up(p, strlen(begins[tool_match(text, n, 0, begins[0]) == TOOL_MATCH_ALL ? 0 : 1]), sink);
        return true;
    }
    *w->tagged = (struct tool_tagged){.properties = properties_of(function_named(p->tools, call.name, call.n_name))};
    tool_begin_call(w, &call, sink);
    tool_drop(w, at, TOOL_ARGUMENTS);
    json_out_raw(&w->out, "{");
    tool_flush_arguments(w, sink);
    return true;
}

/* ---- arguments ---- */

/* Escapes the text of a string. */
static void put_escaped(struct buffer *o, const char *text, size_t n)
{
    if (n == 0)
        return;
    struct buffer quoted = {0};
    json_out_string(&quoted, text, n);
    o->failed |= quoted.failed;
    if (!quoted.failed)
        buffer_append(o, quoted.data + 1, quoted.n - 2);
    buffer_free(&quoted);
}

/* A complete value that is not declared as a string. */
static void put_value(struct buffer *o, const char *text, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const size_t from = tool_skip_blank(text, n, 0);
    size_t end = n;
    while (end > from && tool_is_blank(text[end - 1]))
        end--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (end - from == strlen(words[i][0]) && memcmp(text + from, words[i][0], end - from) == 0) {
            json_out_raw(o, words[i][1]);
            return;
        }
    }
    if (end > from && quire_json_is_pythons(text + from, end - from, VALUE_DEPTH))
        buffer_append(o, text + from, end - from);
    else
        json_out_string(o, text, n);
}

/* The call is over: behind the first n held bytes. */
static bool end_call(struct tool_parser *p, size_t n, bool is_complete, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    if (is_complete)
        json_out_raw(&w->out, "}");
    tool_flush_arguments(w, sink);
    tool_end_call(w, sink);
    tool_drop(w, n, TOOL_END);
    return true;
}

/* The key of an argument begins at `at`. A head that fails ends the call, and comes back as text. */
static bool begin_value(struct tool_parser *p, bool over, size_t at, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tags *tags = tags_of(p);
    const char *text = w->held.data;
    const size_t n = w->held.n < at + TOOL_MAX_HEAD ? w->held.n : at + TOOL_MAX_HEAD;
    const bool open = !over && n < at + TOOL_MAX_HEAD;
    const size_t key = at + strlen(tags->open);
    size_t value = key;
    enum head_step step = find(text, n, open, tags->shut, &value);
    const size_t n_key = value - key;
    value += strlen(tags->shut);
    if (step == HEAD_OK && tags->between) {
        value = tool_skip_blank(text, n, value);
        step = of_match(tool_match(text, n, value, tags->between), open);
        value += strlen(tags->between);
    }
    if (step == HEAD_WAITS)
        return false;
    if (step == HEAD_FAILS || n_key == 0)
        return end_call(p, 0, false, sink);
    struct tool_tagged *t = w->tagged;
    t->in_value = t->is_first = true;
    t->in_quotes = t->is_escaped = false;
    t->first_close = 0;
    t->is_string = key_is_string(p, text + key, n_key);
    json_out_raw(&w->out, t->comma ? ", " : "");
    json_out_string(&w->out, text + key, n_key);
    json_out_raw(&w->out, t->is_string ? ": \"" : ": ");
    t->comma = true;
    tool_flush_arguments(w, sink);
    tool_drop(w, value, TOOL_ARGUMENTS);
    return true;
}

static bool between_values(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tags *tags = tags_of(p);
    const char *end = tool_form(p->format)->end, *text = w->held.data;
    const size_t n = w->held.n, at = tool_skip_blank(text, n, 0);
    const enum tool_match open = tool_match(text, n, at, tags->open);
    const enum tool_match body = tags->body_end ? tool_match(text, n, at, tags->body_end) : TOOL_MATCH_NONE;
    const enum tool_match call = tool_match(text, n, at, end);
    if (open == TOOL_MATCH_ALL)
        return begin_value(p, over, at, sink);
    if (body == TOOL_MATCH_ALL)
        return end_call(p, at + strlen(tags->body_end), true, sink);
    if (call == TOOL_MATCH_ALL)
        return end_call(p, at, true, sink);
    const bool some = open == TOOL_MATCH_SOME || body == TOOL_MATCH_SOME || call == TOOL_MATCH_SOME;
    return (!some || over) && end_call(p, 0, false, sink);
}

/* qwen: the line breaks beside the tags. */
static size_t first_break(const struct tool_parser *p, size_t end)
{
    const struct tool_work *w = p->work;
    return tags_of(p)->breaks && w->tagged->is_first && end > 0 && w->held.data[0] == '\n';
}

static size_t without_break(const struct tool_parser *p, size_t from, size_t end)
{
    return end - (tags_of(p)->breaks && end > from && p->work->held.data[end - 1] == '\n');
}

static bool end_value(struct tool_parser *p, size_t end, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const size_t from = first_break(p, end), to = without_break(p, from, end);
    if (w->tagged->is_string) {
        put_escaped(&w->out, w->held.data + from, to - from);
        json_out_raw(&w->out, "\"");
    } else {
        put_value(&w->out, w->held.data + from, to - from);
    }
    tool_flush_arguments(w, sink);
    w->tagged->in_value = false;
    tool_drop(w, end + strlen(tags_of(p)->close), TOOL_ARGUMENTS);
    return true;
}

/* The first n bytes belong to a string that goes on. */
static void give_string(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const size_t from = first_break(p, n);
    if (n == 0)
        return;
    put_escaped(&w->out, w->held.data + from, n - from);
    tool_flush_arguments(w, sink);
    w->tagged->is_first = false;
    tool_drop(w, n, TOOL_ARGUMENTS);
}

/* The value ends at its first tag, although that is in a string of a list or an object: the value is no JSON. Then the
 * answer's other values are not searched to its end, too. */
static bool end_spoiled(struct tool_parser *p, const struct tool_sink *sink)
{
    p->work->is_spoiled = true;
    return end_value(p, p->work->tagged->first_close, sink);
}

/* Searches the first n bytes of a value for its end. A tag in a string of a list or an object is text, if the value is
 * JSON with it. */
static bool find_end(const struct tool_parser *p, size_t n, size_t *end)
{
    struct tool_work *w = p->work;
    struct tool_tagged *t = w->tagged;
    const char *text = w->held.data, *close = tags_of(p)->close;
    const size_t from = tool_skip_blank(text, n, 0);
    if (t->is_string || w->is_spoiled || from == n || !memchr("{[", text[from], 2)) {
        const char *found = n > w->at ? memmem(text + w->at, n - w->at, close, strlen(close)) : NULL;
        *end = found ? (size_t)(found - text) : 0;
        return found;
    }
    for (; w->at < n; w->at++) {
        const enum tool_match match = tool_match(text, n, w->at, close);
        if (match == TOOL_MATCH_SOME)
            return false;
        if (match == TOOL_MATCH_ALL && t->first_close == 0)
            t->first_close = w->at;
        if (match == TOOL_MATCH_ALL && !t->in_quotes) {
            *end = w->at;
            return true;
        }
        if (t->is_escaped)
            t->is_escaped = false;
        else if (t->in_quotes && text[w->at] == '\\')
            t->is_escaped = true;
        else if (text[w->at] == '"')
            t->in_quotes = !t->in_quotes;
    }
    return false;
}

bool tool_tagged_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    struct tool_tagged *t = w->tagged;
    const char *close = tags_of(p)->close;
    if (!t->in_value)
        return between_values(p, over, sink);
    /* A value that is too long to be held is a string. */
    const size_t most = TOOL_MAX_HELD + strlen(close), n = w->held.n;
    const size_t seen = !t->is_string && n > most ? most : n;
    size_t end;
    if (find_end(p, seen, &end)) {
        const bool is_json = t->first_close == 0 || t->first_close == end ||
                             quire_json_is_pythons(w->held.data, end, VALUE_DEPTH);
        return is_json ? end_value(p, end, sink) : end_spoiled(p, sink);
    }
    if (t->first_close > 0 && (over || n > most))
        return end_spoiled(p, sink);
    if (!t->is_string && n > most) {
        json_out_raw(&w->out, "\"");
        t->is_string = true;
        w->at = 0;
        return true;
    }
    if (over && !t->is_string)
        tool_give_arguments(w, n, TOOL_ARGUMENTS, sink);
    else if (over)
        give_string(p, n, sink);
    else if (t->is_string)
        give_string(p, without_break(p, 0, n - tool_begun(w->held.data, n, close)), sink);
    else if (w->at < n - tool_begun(w->held.data, n, close))
        w->at = n - tool_begun(w->held.data, n, close);
    return false;
}
