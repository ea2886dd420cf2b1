#include "server/front/output/tool_parser.h"

#include "base/json.h"

#include <string.h>

#define MAX_DEPTH 64
/* What is left is moved down behind each tag: a megabyte of them in one piece would hold the loop for 1.5 s, in such
 * pieces it takes 5 ms. */
#define SLICE_BYTES 4096

/* ---- formats -------------------------------------------------------------------------------- */

static const struct form {
    const char *name, *tag, *end;
} forms[] = {
    [TOOL_NONE] = {"none", NULL, NULL},
    [TOOL_HERMES] = {"hermes", "<tool_call>", "</tool_call>"},
    [TOOL_LLAMA3_JSON] = {"llama3_json", "<|python_tag|>", NULL},
};

bool tool_format_find(const char *name, enum tool_format *out)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(name, forms[i].name) == 0) {
            *out = (enum tool_format)i;
            return true;
        }
    }
    return false;
}

const char *tool_format_tag(enum tool_format format)
{
    return forms[format].tag;
}

/* ---- JSON text ------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_blank(const char *text, size_t n, size_t at)
{
    while (at < n && is_blank(text[at]))
        at++;
    return at;
}

/* Behind the value that begins at `at`, in text that is known to be JSON. */
static size_t skip_value(const char *text, size_t at)
{
    bool in_string = false;
    uint32_t depth = 0;
    for (;; at++) {
        char c = text[at];
        if (in_string) {
            at += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return at;
            depth--;
        } else if (depth == 0 && (c == ',' || c == ':' || is_blank(c))) {
            return at;
        } else {
            continue;
        }
        if (depth == 0 && !in_string)
            return at + 1;
    }
}

/* Where a member's value lies in the text of an object that is known to be JSON. */
static bool find_member(const char *text, size_t n, const char *key, const char **value, size_t *n_value)
{
    size_t n_key = strlen(key), at = skip_blank(text, n, 1);
    while (text[at] == '"') {
        size_t end = skip_value(text, at);
        bool found = end - at == n_key + 2 && memcmp(text + at + 1, key, n_key) == 0;
        at = skip_blank(text, n, skip_blank(text, n, end) + 1); /* past the colon */
        end = skip_value(text, at);
        if (found) {
            *value = text + at;
            *n_value = end - at;
            return true;
        }
        at = skip_blank(text, n, end);
        if (text[at] == ',')
            at = skip_blank(text, n, at + 1);
    }
    return false;
}

/* Gives an object out if it is a call. */
static bool give_call(const char *text, size_t n, const struct tool_sink *sink)
{
    json_t *object = NULL;
    struct quire_error err;
    struct tool_call call;
    bool is_call = false;
    if (quire_json_parse(text, n, MAX_DEPTH, "call", &object, &err) == QUIRE_OK) {
        const json_t *name = json_object_get(object, "name");
        const char *key = json_object_get(object, "arguments") ? "arguments" : "parameters";
        call.name = json_string_value(name);
        call.n_name = json_string_length(name);
        is_call = call.n_name > 0 && json_is_object(json_object_get(object, key)) &&
                  find_member(text, n, key, &call.arguments, &call.n_arguments);
        if (is_call)
            sink->call(sink->context, &call);
    }
    json_decref(object);
    return is_call;
}

/* ---- what comes out ------------------------------------------------------------------------- */

/* The first n bytes that are held are content. */
static void give_text(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    const char *text = p->held.data;
    size_t end = n;
    while (end > 0 && is_blank(text[end - 1]))
        end--;
    if (end > 0) {
        bool cut = p->after_call && !p->has_text;
        size_t from = cut ? skip_blank(text, n, 0) : 0;
        if (p->blank.n > 0 && !cut)
            sink->text(sink->context, p->blank.data, p->blank.n);
        buffer_clear(&p->blank);
        p->after_call = false;
        p->has_text = true;
        sink->text(sink->context, text + from, end - from);
    }
    buffer_append(&p->blank, text + end, n - end);
}

/* The first n bytes that are held are done with. */
static void drop(struct tool_parser *p, size_t n, enum tool_state state)
{
    if (n > 0)
        memmove(p->held.data, p->held.data + n, p->held.n - n);
    p->held.n -= n;
    p->at = p->object = 0;
    p->depth = 0;
    p->in_string = p->is_escaped = false;
    p->state = state;
}

static void give_up(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    give_text(p, n, sink);
    drop(p, n, p->format == TOOL_HERMES ? TOOL_TEXT : TOOL_PLAIN);
}

/* ---- states: each returns whether there is more to do with what is held ---------------------- */

/* Bytes at the end of what is held that may begin the words. */
static size_t begun(const struct tool_parser *p, const char *words)
{
    size_t n = strlen(words) - 1;
    if (n > p->held.n)
        n = p->held.n;
    while (n > 0 && memcmp(p->held.data + p->held.n - n, words, n) != 0)
        n--;
    return n;
}

static bool in_text(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *tag = forms[p->format].tag;
    const char *found = p->held.n > 0 ? memmem(p->held.data, p->held.n, tag, strlen(tag)) : NULL;
    size_t n = found ? (size_t)(found - p->held.data) : p->held.n - (over ? 0 : begun(p, tag));
    if (n > 0)
        give_text(p, n, sink);
    drop(p, n, found ? TOOL_OBJECT : TOOL_TEXT);
    p->at = found ? strlen(tag) : 0;
    return found != NULL;
}

/* The start of a reply, or what follows a call's semicolon: blanks, a tag perhaps, and an object. */
static bool at_start(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *tag = forms[p->format].tag;
    size_t n_tag = strlen(tag), from = skip_blank(p->held.data, p->held.n, 0), n = p->held.n - from;
    if (n > 0 && p->held.data[from] == '{') {
        p->at = from;
    } else if (n >= n_tag && memcmp(p->held.data + from, tag, n_tag) == 0) {
        p->at = from + n_tag;
    } else if (!over && n < n_tag && memcmp(p->held.data + from, tag, n) == 0) {
        return false;
    } else {
        give_up(p, p->held.n, sink);
        return p->held.n > 0;
    }
    p->state = TOOL_OBJECT;
    return true;
}

/* From p->at: blanks and an object, up to its end. */
static bool in_object(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *text = p->held.data;
    size_t n = p->held.n;
    if (p->depth == 0) {
        p->at = skip_blank(text, n, p->at);
        if (p->at < n && text[p->at] != '{') {
            give_up(p, p->at, sink);
            return true;
        }
        p->object = p->at;
    }
    for (; p->at < n; p->at++) {
        char c = text[p->at];
        if (p->in_string) {
            bool ends = c == '"' && !p->is_escaped;
            p->is_escaped = c == '\\' && !p->is_escaped;
            p->in_string = !ends;
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if ((c == '}' || c == ']') && --p->depth == 0) {
            p->end = ++p->at;
            p->state = TOOL_AFTER;
            return true;
        }
    }
    if (over) /* what follows an object without an end is not looked at: it is part of it */
        give_up(p, n, sink);
    return false;
}

static void take_call(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    if (!give_call(p->held.data + p->object, p->end - p->object, sink)) {
        give_up(p, p->end, sink);
        return;
    }
    buffer_clear(&p->blank);
    p->after_call = true;
    drop(p, n, p->format == TOOL_HERMES ? TOOL_TEXT : TOOL_AFTER);
}

/* Behind a hermes object: its end tag, which the text's end may cut off. */
static bool after_object(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *end = forms[p->format].end;
    size_t n_end = strlen(end), from = skip_blank(p->held.data, p->held.n, p->end), n = p->held.n - from;
    if (memcmp(p->held.data + from, end, n < n_end ? n : n_end) != 0)
        give_up(p, p->end, sink);
    else if (n >= n_end || over)
        take_call(p, n >= n_end ? from + n_end : p->held.n, sink);
    else
        return false;
    return p->held.n > 0;
}

/* Behind a llama object: the end, text, or a semicolon and another object. */
static bool after_llama(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *text = p->held.data;
    if (p->end > 0) { /* its own end is all that it needs */
        take_call(p, p->end, sink);
        p->end = 0;
        return p->held.n > 0;
    }
    size_t n = p->held.n, at = skip_blank(text, n, 0);
    bool is_more = at < n && text[at] == ';';
    size_t next = is_more ? skip_blank(text, n, at + 1) : at;
    if (is_more && next < n && text[next] == '{') {
        p->at = next;
        p->state = TOOL_OBJECT;
        return true;
    }
    if (next < n || over) {
        give_up(p, n, sink);
        return p->held.n > 0;
    }
    return false;
}

static bool step(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    bool hermes = p->format == TOOL_HERMES;
    switch (p->state) {
    case TOOL_TEXT: return hermes ? in_text(p, over, sink) : at_start(p, over, sink);
    case TOOL_OBJECT: return in_object(p, over, sink);
    case TOOL_AFTER: return hermes ? after_object(p, over, sink) : after_llama(p, over, sink);
    case TOOL_PLAIN: break;
    }
    give_text(p, p->held.n, sink);
    drop(p, p->held.n, TOOL_PLAIN);
    return false;
}

/* ---- the door ------------------------------------------------------------------------------- */

bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink)
{
    for (size_t at = 0; at < n; at += SLICE_BYTES) {
        buffer_append(&p->held, text + at, n - at < SLICE_BYTES ? n - at : SLICE_BYTES);
        while (!p->held.failed && p->held.n > 0 && step(p, false, sink)) {
        }
    }
    return !p->held.failed && !p->blank.failed;
}

bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink)
{
    if (p->held.failed || p->blank.failed)
        return false;
    while (p->held.n > 0 && step(p, true, sink)) {
    }
    if (p->blank.n > 0 && !p->after_call)
        sink->text(sink->context, p->blank.data, p->blank.n);
    return !p->blank.failed;
}

void tool_parser_free(struct tool_parser *p)
{
    buffer_free(&p->held);
    buffer_free(&p->blank);
}
