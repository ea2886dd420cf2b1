#include "server/front/tools/tool_work.h"

#include <string.h>

/* ---- the text ---- */

bool tool_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t tool_skip_blank(const char *text, size_t n, size_t at)
{
    while (at < n && tool_is_blank(text[at]))
        at++;
    return at;
}

enum tool_match tool_match(const char *text, size_t n, size_t at, const char *word)
{
    const size_t n_word = strlen(word), left = n - at, both = left < n_word ? left : n_word;
    if (both > 0 && memcmp(text + at, word, both) != 0)
        return TOOL_MATCH_NONE;
    return left < n_word ? TOOL_MATCH_SOME : TOOL_MATCH_ALL;
}

size_t tool_begun(const char *text, size_t n, const char *word)
{
    size_t begun = strlen(word) - 1;
    if (begun > n)
        begun = n;
    while (begun > 0 && memcmp(text + n - begun, word, begun) != 0)
        begun--;
    return begun;
}

/* ---- output ---- */

void tool_drop(struct tool_work *w, size_t n, enum tool_state state)
{
    if (n > 0)
        memmove(w->held.data, w->held.data + n, w->held.n - n);
    w->held.n -= n;
    w->at = 0;
    w->state = state;
}

void tool_give_text(struct tool_work *w, size_t n, enum tool_state state, const struct tool_sink *sink)
{
    const char *text = w->held.data;
    size_t end = n;
    while (end > 0 && tool_is_blank(text[end - 1]))
        end--;
    if (end > 0) {
        const bool cut = w->after_call && !w->has_text;
        const size_t from = cut ? tool_skip_blank(text, n, 0) : 0;
        if (w->blank.n > 0 && !cut)
            sink->text(sink->context, w->blank.data, w->blank.n);
        buffer_clear(&w->blank);
        w->after_call = false;
        w->has_text = true;
        sink->text(sink->context, text + from, end - from);
    }
    if (n > end)
        buffer_append(&w->blank, text + end, n - end);
    tool_drop(w, n, state);
}

void tool_give_up(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    w->in_array = false;
    if (w->state == TOOL_HEAD) {
        p->n_malformed += !w->is_malformed;
        w->is_malformed = true;
    }
    tool_give_text(w, n, tool_form(p->format)->begins[0] ? TOOL_TEXT : TOOL_PLAIN, sink);
}

void tool_give_arguments(struct tool_work *w, size_t n, enum tool_state state, const struct tool_sink *sink)
{
    if (n > 0)
        sink->call_arguments(sink->context, w->held.data, n);
    tool_drop(w, n, state);
}

void tool_begin_call(struct tool_work *w, const struct tool_call *call, const struct tool_sink *sink)
{
    struct tool_call counted = *call;
    counted.index = w->n_calls++;
    buffer_clear(&w->blank);
    w->after_call = w->in_call = true;
    w->is_malformed = false;
    sink->call_begin(sink->context, &counted);
}

void tool_flush_arguments(struct tool_work *w, const struct tool_sink *sink)
{
    if (w->out.n > 0)
        sink->call_arguments(sink->context, w->out.data, w->out.n);
    w->held.failed |= w->out.failed;
    buffer_clear(&w->out);
}

void tool_end_call(struct tool_work *w, const struct tool_sink *sink)
{
    w->in_call = false;
    sink->call_end(sink->context);
}
