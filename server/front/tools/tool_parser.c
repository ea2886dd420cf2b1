#include "server/front/tools/tool_work.h"

#include <stdlib.h>
#include <string.h>

/* The rest is moved down after each tag: with a megabyte of tags in one piece, this would stop the loop for 1.5 s. In
 * slices of this size it takes 5 ms. */
#define SLICE_BYTES 4096

/* ---- states that the notations share ---- */

/* Finds the first tag that may begin a call. */
static const char *find_begin(const struct tool_work *w, const struct tool_form *form)
{
    const char *const tags[] = {form->lead, form->begins[0], form->begins[1]};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const char *found = tags[i] ? memmem(w->held.data, w->held.n, tags[i], strlen(tags[i])) : NULL;
        if (found && (!first || found < first))
            first = found;
    }
    return first;
}

/* Number of bytes at the end that may begin such a tag. */
static size_t begun(const struct tool_work *w, const struct tool_form *form)
{
    const char *const tags[] = {form->lead, form->begins[0], form->begins[1]};
    size_t most = 0;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const size_t n = tags[i] ? tool_begun(w->held.data, w->held.n, tags[i]) : 0;
        if (n > most)
            most = n;
    }
    return most;
}

static bool in_text(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tool_form *form = tool_form(p->format);
    const char *found = find_begin(w, form);
    const size_t n = found ? (size_t)(found - w->held.data) : w->held.n - (over ? 0 : begun(w, form));
    if (tool_skip_blank(w->held.data, n, 0) < n)
        w->is_malformed = false;
    tool_give_text(w, n, found ? TOOL_HEAD : TOOL_TEXT, sink);
    memset(&w->object, 0, sizeof w->object);
    return found != NULL;
}

/* At the start of an answer, for formats whose calls are nowhere else: blanks, an optional tag, blanks, and a bracket. */
static bool at_start(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tool_form *form = tool_form(p->format);
    const char *text = w->held.data;
    size_t at = tool_skip_blank(text, w->held.n, 0);
    const enum tool_match lead = form->lead ? tool_match(text, w->held.n, at, form->lead) : TOOL_MATCH_NONE;
    if (lead == TOOL_MATCH_ALL)
        at = tool_skip_blank(text, w->held.n, at + strlen(form->lead));
    if ((at == w->held.n || lead == TOOL_MATCH_SOME) && !over)
        return false;
    if (at == w->held.n || text[at] != (form->notation == TOOL_PYTHON ? '[' : '{')) {
        tool_give_up(p, w->held.n, sink);
        return false;
    }
    memset(&w->object, 0, sizeof w->object);
    w->at = at;
    w->state = TOOL_HEAD;
    return true;
}

/* Behind the tag of a call in JSON. */
static bool object_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    if (w->at == 0 && tool_form(p->format)->begins[0])
        w->at = strlen(tool_form(p->format)->begins[0]);
    return tool_object_head(p, over, sink);
}

/* Behind a call: the end of a block of code and the end tag, each optional. The end of the text may cut them off. */
static bool at_end(struct tool_parser *p, bool over)
{
    struct tool_work *w = p->work;
    const struct tool_form *form = tool_form(p->format);
    const char *const words[] = {form->unfence, form->end};
    size_t done = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t at = tool_skip_blank(w->held.data, w->held.n, done);
        const enum tool_match match = words[i] ? tool_match(w->held.data, w->held.n, at, words[i]) : TOOL_MATCH_NONE;
        if (match == TOOL_MATCH_SOME && !over)
            return false;
        if (match == TOOL_MATCH_SOME)
            done = w->held.n;
        else if (match == TOOL_MATCH_ALL)
            done = at + strlen(words[i]);
    }
    tool_drop(w, done, TOOL_AFTER);
    return true;
}

/* Behind an item of a list: what separates it from the next one, or ends the list. */
static bool after_item(struct tool_parser *p, bool over, const struct tool_sink *sink, char separator, char next)
{
    struct tool_work *w = p->work;
    const char *text = w->held.data;
    const size_t n = w->held.n, at = tool_skip_blank(text, n, 0);
    const bool is_more = at < n && text[at] == separator;
    const size_t item = is_more ? tool_skip_blank(text, n, at + 1) : at;
    if (item == n && !over)
        return false;
    if (is_more && item < n && (!next || text[item] == next)) {
        memset(&w->object, 0, sizeof w->object);
        w->at = item;
        w->state = TOOL_HEAD;
        return true;
    }
    if (separator == ',' && at < n && text[at] == ']') {
        w->in_array = false;
        tool_drop(w, at + 1, TOOL_AFTER);
        return true;
    }
    tool_give_up(p, 0, sink);
    return n > 0;
}

static bool after_call(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tool_form *form = tool_form(p->format);
    if (w->in_array)
        return after_item(p, over, sink, ',', form->notation == TOOL_PYTHON ? 0 : '{');
    if (p->format == TOOL_LLAMA3_JSON)
        return after_item(p, over, sink, ';', '{');
    const size_t at = tool_skip_blank(w->held.data, w->held.n, 0);
    const enum tool_match tail = form->tail ? tool_match(w->held.data, w->held.n, at, form->tail) : TOOL_MATCH_NONE;
    if (tail == TOOL_MATCH_SOME && !over)
        return false;
    if (tail != TOOL_MATCH_NONE)
        tool_drop(w, tail == TOOL_MATCH_ALL ? at + strlen(form->tail) : w->held.n, TOOL_AFTER);
    tool_give_up(p, 0, sink);
    return w->held.n > 0;
}

static bool in_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    switch (tool_form(p->format)->notation) {
    case TOOL_NAMED: return p->work->in_array ? tool_object_head(p, over, sink) : tool_named_head(p, over, sink);
    case TOOL_TAGGED: return tool_tagged_head(p, over, sink);
    case TOOL_PYTHON: return tool_python_head(p, over, sink);
    case TOOL_JSON_OBJECT: break;
    }
    return object_head(p, over, sink);
}

static bool in_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    switch (tool_form(p->format)->notation) {
    case TOOL_TAGGED: return tool_tagged_arguments(p, over, sink);
    case TOOL_PYTHON: return tool_python_arguments(p, over, sink);
    case TOOL_NAMED:
    case TOOL_JSON_OBJECT: break;
    }
    return tool_json_arguments(p, over, sink);
}

static bool step(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    switch (w->state) {
    case TOOL_START: return tool_form(p->format)->begins[0] ? in_text(p, over, sink) : at_start(p, over, sink);
    case TOOL_TEXT: return in_text(p, over, sink);
    case TOOL_HEAD: return in_head(p, over, sink);
    case TOOL_ARGUMENTS: return in_arguments(p, over, sink);
    case TOOL_REST: return tool_object_rest(p, over, sink);
    case TOOL_END: return at_end(p, over);
    case TOOL_AFTER: return after_call(p, over, sink);
    case TOOL_PLAIN: break;
    }
    tool_give_text(w, w->held.n, TOOL_PLAIN, sink);
    return false;
}

/* ---- public functions ---- */

static bool ready(struct tool_parser *p)
{
    struct tool_work *w = p->work ? p->work : calloc(1, sizeof *w);
    const enum tool_notation notation = tool_form(p->format)->notation;
    if (!p->work && w && notation == TOOL_PYTHON)
        w->python = calloc(1, sizeof *w->python);
    if (!p->work && w && notation == TOOL_TAGGED)
        w->tagged = calloc(1, sizeof *w->tagged);
    p->work = w;
    return w && (notation != TOOL_PYTHON || w->python) && (notation != TOOL_TAGGED || w->tagged) && !w->held.failed &&
           !w->blank.failed;
}

/* The end of a slice: not within a character. */
static size_t slice_end(const char *text, size_t n, size_t at)
{
    size_t end = n - at < SLICE_BYTES ? n : at + SLICE_BYTES;
    for (int i = 0; i < 3 && end < n && ((unsigned char)text[end] & 0xc0) == 0x80; i++)
        end--;
    return end;
}

bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink)
{
    if (!ready(p))
        return false;
    struct tool_work *w = p->work;
    for (size_t at = 0, end; at < n; at = end) {
        end = slice_end(text, n, at);
        buffer_append(&w->held, text + at, end - at);
        while (!w->held.failed && w->held.n > 0 && step(p, false, sink)) {
        }
    }
    return !w->held.failed && !w->blank.failed;
}

bool tool_parser_interrupt(struct tool_parser *p, const struct tool_sink *sink)
{
    if (!ready(p))
        return false;
    struct tool_work *w = p->work;
    while (!w->held.failed && w->held.n > 0 && step(p, true, sink)) {
    }
    if (w->in_call)
        tool_end_call(w, sink);
    w->in_array = false;
    w->state = tool_form(p->format)->begins[0] ? TOOL_TEXT : TOOL_PLAIN;
    return !w->held.failed && !w->blank.failed;
}

bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink)
{
    if (!tool_parser_interrupt(p, sink))
        return false;
    const struct tool_work *w = p->work;
    if (w->blank.n > 0 && !w->after_call)
        sink->text(sink->context, w->blank.data, w->blank.n);
    return !w->held.failed && !w->blank.failed;
}

void tool_parser_free(struct tool_parser *p)
{
    if (!p->work)
        return;
    buffer_free(&p->work->held);
    buffer_free(&p->work->blank);
    buffer_free(&p->work->out);
    free(p->work->python);
    free(p->work->tagged);
    free(p->work);
    p->work = NULL;
}
