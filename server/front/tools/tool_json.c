/* Calls in JSON: an object with a name and arguments, and arguments in JSON of other notations. A model wrote it, so it
 * may be cut or be no JSON: what counts is where its strings and brackets are. */
#include "server/front/tools/tool_work.h"

#include <jansson.h>
#include <string.h>

/* ---- values ---- */

void tool_value_begin(struct tool_value *v)
{
    *v = (struct tool_value){0};
}

enum tool_value_step tool_value_step(struct tool_value *v, char c)
{
    if (v->last == 0) {
        v->open = c == '{' || c == '[' || c == '"' ? c : 0;
        v->in_string = c == '"';
        v->depth = v->open && c != '"';
        v->last = c;
        return TOOL_VALUE_GOES_ON;
    }
    v->last = c;
    if (v->in_string) {
        v->in_string = c != '"' || v->is_escaped;
        v->is_escaped = c == '\\' && !v->is_escaped;
        return v->in_string || v->open != '"' ? TOOL_VALUE_GOES_ON : TOOL_VALUE_ENDS_BEHIND;
    }
    if (!v->open)
        return c == ',' || c == '}' ? TOOL_VALUE_ENDS_BEFORE : TOOL_VALUE_GOES_ON;
    v->in_string = c == '"';
    v->depth += c == v->open;
    if (c == (v->open == '{' ? '}' : ']') && --v->depth == 0)
        return TOOL_VALUE_ENDS_BEHIND;
    return TOOL_VALUE_GOES_ON;
}

/* ---- the members of an object ---- */

enum object_step {
    OBJECT_GOES_ON,
    OBJECT_WAITS, /* for more text */
    OBJECT_FAILS, /* this byte does not belong to it */
    OBJECT_ENDS, /* with this byte */
    OBJECT_IS_CUT, /* an end tag is here */
    OBJECT_ARGUMENTS, /* they begin here, and the name is known */
    OBJECT_CALL, /* name and arguments are complete */
};

static bool span_is(const struct tool_work *w, struct tool_span span, const char *word)
{
    return span.n == strlen(word) && memcmp(w->held.data + span.from, word, span.n) == 0;
}

static bool is_arguments(const struct tool_work *w)
{
    return span_is(w, w->object.key, "\"arguments\"") || span_is(w, w->object.key, "\"parameters\"");
}

/* The name of a call, if it is a non-empty string; NULL otherwise. The caller owns it. */
static json_t *read_name(const struct tool_work *w, struct tool_span span)
{
    json_t *name = span.n <= TOOL_MAX_HEAD ? json_loadb(w->held.data + span.from, span.n, JSON_DECODE_ANY, NULL) : NULL;
    if (json_string_length(name) > 0)
        return name;
    json_decref(name);
    return NULL;
}

/* The value of a member ends before `end`. If two members have the same name, the first one counts. */
static enum object_step end_value(struct tool_work *w, size_t end)
{
    struct tool_object *o = &w->object;
    while (end > o->value_from && tool_is_blank(w->held.data[end - 1]))
        end--;
    const struct tool_span span = {o->value_from, end - o->value_from};
    o->place = TOOL_COMMA;
    if (o->is_rest)
        return OBJECT_GOES_ON;
    if (o->name.n == 0 && span_is(w, o->key, "\"name\"")) {
        json_t *name = read_name(w, span);
        if (name)
            o->name = span;
        json_decref(name);
    } else if (o->arguments.n == 0 && o->value.open != '"' && is_arguments(w)) {
        o->arguments = span;
    }
    return o->name.n > 0 && o->arguments.n > 0 ? OBJECT_CALL : OBJECT_GOES_ON;
}

static enum object_step begin_value(struct tool_work *w, size_t i, char c)
{
    struct tool_object *o = &w->object;
    if (c == ',' || c == '}')
        return OBJECT_FAILS;
    if (c != '"' && !o->is_rest && o->name.n > 0 && o->arguments.n == 0 && is_arguments(w))
        return OBJECT_ARGUMENTS;
    o->value_from = i;
    o->place = TOOL_IN_VALUE;
    tool_value_begin(&o->value);
    tool_value_step(&o->value, c);
    return OBJECT_GOES_ON;
}

static enum object_step after_value(struct tool_object *o, char c)
{
    if (c == ',')
        o->place = TOOL_KEY;
    return c == ',' || tool_is_blank(c) ? OBJECT_GOES_ON : c == '}' ? OBJECT_ENDS : OBJECT_FAILS;
}

/* Reads the byte at i of the held text. */
static enum object_step object_step(struct tool_work *w, size_t i)
{
    struct tool_object *o = &w->object;
    const char c = w->held.data[i];
    const bool blank = tool_is_blank(c);
    switch (o->place) {
    case TOOL_OPEN:
        if (c == '{')
            o->place = TOOL_KEY;
        return blank || c == '{' ? OBJECT_GOES_ON : OBJECT_FAILS;
    case TOOL_KEY:
        if (blank || c == '}')
            return blank ? OBJECT_GOES_ON : OBJECT_ENDS;
        o->key.from = i;
        o->place = TOOL_IN_KEY;
        tool_value_begin(&o->value);
        tool_value_step(&o->value, c);
        return c == '"' ? OBJECT_GOES_ON : OBJECT_FAILS;
    case TOOL_IN_KEY:
        if (tool_value_step(&o->value, c) == TOOL_VALUE_ENDS_BEHIND) {
            o->key.n = i + 1 - o->key.from;
            o->place = TOOL_COLON;
        }
        return OBJECT_GOES_ON;
    case TOOL_COLON:
        if (c == ':')
            o->place = TOOL_VALUE;
        return blank || c == ':' ? OBJECT_GOES_ON : OBJECT_FAILS;
    case TOOL_VALUE: return blank ? OBJECT_GOES_ON : begin_value(w, i, c);
    case TOOL_IN_VALUE: {
        const enum tool_value_step step = tool_value_step(&o->value, c);
        if (step == TOOL_VALUE_GOES_ON)
            return OBJECT_GOES_ON;
        const enum object_step ended = end_value(w, step == TOOL_VALUE_ENDS_BEHIND ? i + 1 : i);
        return ended != OBJECT_GOES_ON || step == TOOL_VALUE_ENDS_BEHIND ? ended : after_value(o, c);
    }
    case TOOL_COMMA: break;
    }
    return after_value(o, c);
}

/* Whether an end tag is at i, outside a string. The end of the text may cut it off. */
static enum tool_match end_tag(const struct tool_parser *p, const struct tool_value *v, size_t i)
{
    const struct tool_work *w = p->work;
    const char *end = tool_form(p->format)->end;
    /* A line break in a string is no JSON: in front of an end tag, the model forgot the quote. */
    if (!end || w->held.data[i] != end[0] || (v->in_string && v->last != '\n'))
        return TOOL_MATCH_NONE;
    return tool_match(w->held.data, w->held.n, i, end);
}

static enum object_step next_step(const struct tool_parser *p, size_t i, bool over)
{
    static const struct tool_value outside;
    struct tool_work *w = p->work;
    const bool in_value = w->object.place == TOOL_IN_VALUE || w->object.place == TOOL_IN_KEY;
    const enum tool_match end = end_tag(p, in_value ? &w->object.value : &outside, i);
    if (end == TOOL_MATCH_SOME && !over)
        return OBJECT_WAITS;
    return end == TOOL_MATCH_NONE ? object_step(w, i) : OBJECT_IS_CUT;
}

static void begin_call(struct tool_work *w, const struct tool_sink *sink)
{
    json_t *name = read_name(w, w->object.name);
    const struct tool_call call = {.name = json_string_value(name), .n_name = json_string_length(name)};
    tool_begin_call(w, &call, sink);
    json_decref(name);
}

/* The object goes on behind its arguments. */
static void begin_rest(struct tool_parser *p)
{
    const bool is_object = tool_form(p->format)->notation == TOOL_JSON_OBJECT || p->work->in_array;
    p->work->object = (struct tool_object){.place = TOOL_COMMA, .is_rest = true};
    p->work->state = is_object ? TOOL_REST : TOOL_END;
}

/* Arguments came before the name: they are passed on at once. */
static bool take_whole(struct tool_parser *p, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tool_span arguments = w->object.arguments;
    /* A value without an end of its own ends before this byte. */
    const size_t done = w->object.value.open ? w->at + 1 : w->at;
    begin_call(w, sink);
    sink->call_arguments(sink->context, w->held.data + arguments.from, arguments.n);
    tool_end_call(w, sink);
    tool_drop(w, done, TOOL_REST);
    begin_rest(p);
    return true;
}

bool tool_object_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    for (; w->at < w->held.n; w->at++) {
        const enum object_step step = w->at < TOOL_MAX_HELD ? next_step(p, w->at, over) : OBJECT_FAILS;
        switch (step) {
        case OBJECT_GOES_ON: continue;
        case OBJECT_WAITS: return false;
        case OBJECT_FAILS:
        case OBJECT_IS_CUT: tool_give_up(p, w->at, sink); return true;
        case OBJECT_ENDS: tool_give_up(p, w->at + 1, sink); return true;
        case OBJECT_CALL: return take_whole(p, sink);
        case OBJECT_ARGUMENTS: break;
        }
        begin_call(w, sink);
        tool_drop(w, w->at, TOOL_ARGUMENTS);
        tool_value_begin(&w->object.value);
        return true;
    }
    if (over)
        tool_give_up(p, w->held.n, sink);
    return false;
}

/* Ends the arguments with the first n held bytes. */
static bool end_arguments(struct tool_parser *p, size_t n, size_t done, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    if (n > 0)
        sink->call_arguments(sink->context, w->held.data, n);
    tool_end_call(w, sink);
    tool_drop(w, done, TOOL_REST);
    begin_rest(p);
    return true;
}

/* Without the blanks at the end, if it may have ended before them. */
static size_t trimmed(const struct tool_work *w, size_t n)
{
    while (!w->object.value.open && n > 0 && tool_is_blank(w->held.data[n - 1]))
        n--;
    return n;
}

bool tool_json_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    struct tool_value *v = &w->object.value;
    for (; w->at < w->held.n; w->at++) {
        const enum tool_match end = end_tag(p, v, w->at);
        if (end == TOOL_MATCH_SOME && !over)
            break;
        if (end != TOOL_MATCH_NONE)
            return end_arguments(p, trimmed(w, w->at), w->at, sink);
        const enum tool_value_step step = tool_value_step(v, w->held.data[w->at]);
        if (step == TOOL_VALUE_ENDS_BEHIND)
            return end_arguments(p, w->at + 1, w->at + 1, sink);
        if (step == TOOL_VALUE_ENDS_BEFORE)
            return end_arguments(p, trimmed(w, w->at), w->at, sink);
    }
    const size_t n = trimmed(w, w->at), left = w->at - n;
    if (n > 0)
        tool_give_arguments(w, n, TOOL_ARGUMENTS, sink);
    w->at = left;
    if (over)
        tool_drop(w, w->held.n, TOOL_ARGUMENTS);
    return false;
}

bool tool_object_rest(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    for (; w->at < w->held.n; w->at++) {
        const enum object_step step = w->at < TOOL_MAX_HELD ? next_step(p, w->at, over) : OBJECT_FAILS;
        if (step == OBJECT_GOES_ON)
            continue;
        if (step == OBJECT_WAITS)
            return false;
        if (step == OBJECT_ENDS || step == OBJECT_IS_CUT)
            tool_drop(w, step == OBJECT_ENDS ? w->at + 1 : w->at, TOOL_END);
        else
            tool_drop(w, 0, TOOL_AFTER);
        return true;
    }
    if (over)
        tool_give_up(p, w->held.n, sink);
    return false;
}
