/* Calls whose name stands between a tag and their arguments. */
#include "server/front/tools/tool_work.h"

#include <string.h>

/* The held text up to TOOL_MAX_HEAD bytes, from a tag. Not all of it is there yet if `open`. */
struct head {
    const char *text;
    size_t n, at;
    bool open;
};
enum head_step { HEAD_OK, HEAD_WAITS, HEAD_FAILS };

/* The head is not complete at its end. */
static enum head_step short_of(const struct head *h)
{
    return h->open ? HEAD_WAITS : HEAD_FAILS;
}

/* Passes blanks and then this word. */
static enum head_step pass(struct head *h, const char *word)
{
    const size_t at = tool_skip_blank(h->text, h->n, h->at);
    const enum tool_match match = tool_match(h->text, h->n, at, word);
    if (match == TOOL_MATCH_ALL)
        h->at = at + strlen(word);
    return match == TOOL_MATCH_ALL ? HEAD_OK : match == TOOL_MATCH_SOME ? short_of(h) : HEAD_FAILS;
}

/* Passes blanks and, if it is there, this word. */
static enum head_step pass_optional(struct head *h, const char *word)
{
    const enum head_step step = word ? pass(h, word) : HEAD_OK;
    return step == HEAD_FAILS ? HEAD_OK : step;
}

static bool is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || memchr("<>{}\"'()[],", text[i], 11))
            return false;
    return n > 0;
}

/* openai: the header of a message to a function. */
static bool read_recipient(struct tool_call *call)
{
    static const char word[] = "to=functions.";
    const char *found = memmem(call->name, call->n_name, word, sizeof word - 1), *end = call->name + call->n_name;
    if (!found)
        return false;
    call->name = found + sizeof word - 1;
    const char *p = call->name;
    while (p < end && !tool_is_blank(*p) && *p != '<')
        p++;
    call->n_name = (size_t)(p - call->name);
    return true;
}

/* kimi_k2: functions.NAME:INDEX, which is also the call's id. */
static void read_kimi(struct tool_call *call)
{
    static const char word[] = "functions.";
    call->id = call->name;
    call->n_id = call->n_name;
    if (tool_match(call->name, call->n_name, 0, word) == TOOL_MATCH_ALL) {
        call->name += sizeof word - 1;
        call->n_name -= sizeof word - 1;
    }
    size_t n = call->n_name;
    while (n > 0 && call->name[n - 1] >= '0' && call->name[n - 1] <= '9')
        n--;
    if (n > 1 && n < call->n_name && call->name[n - 1] == ':')
        call->n_name = n - 1;
}

/* The name up to the separator. */
static enum head_step read_name(const struct tool_parser *p, struct head *h, struct tool_call *call)
{
    const char *separator = tool_form(p->format)->separator;
    h->at = tool_skip_blank(h->text, h->n, h->at);
    const char *found = memmem(h->text + h->at, h->n - h->at, separator, strlen(separator));
    if (!found)
        return short_of(h);
    call->name = h->text + h->at;
    h->at = (size_t)(found - h->text);
    call->n_name = h->at - (size_t)(call->name - h->text);
    h->at += strlen(separator);
    while (call->n_name > 0 && tool_is_blank(call->name[call->n_name - 1]))
        call->n_name--;
    if (p->format == TOOL_KIMI_K2)
        read_kimi(call);
    const bool ok = p->format != TOOL_OPENAI || read_recipient(call);
    return ok && is_name(call->name, call->n_name) ? HEAD_OK : HEAD_FAILS;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

/* Words of a name or an id, which end within the head. */
static enum head_step read_word(struct head *h, const char **word, size_t *n)
{
    h->at = tool_skip_blank(h->text, h->n, h->at);
    *word = h->text + h->at;
    while (h->at < h->n && is_word(h->text[h->at]))
        h->at++;
    *n = (size_t)(h->text + h->at - *word);
    return h->at == h->n ? short_of(h) : *n > 0 ? HEAD_OK : HEAD_FAILS;
}

/* mistral: name, optional id, optional tag of the arguments. */
static enum head_step read_mistral(struct head *h, struct tool_call *call)
{
    enum head_step step = read_word(h, &call->name, &call->n_name);
    const size_t before = h->at;
    if (step == HEAD_OK)
        step = pass_optional(h, "[CALL_ID]");
    if (step == HEAD_OK && h->at > before)
        step = read_word(h, &call->id, &call->n_id);
    return step == HEAD_OK ? pass_optional(h, "[ARGS]") : step;
}

/* Passes the optional tag of a section, and the tag of a call. */
static enum head_step pass_tags(const struct tool_form *form, struct head *h)
{
    enum head_step step = pass_optional(h, form->lead);
    const size_t at = h->at;
    for (size_t i = 0; i < 2 && step == HEAD_OK && form->begins[i]; i++) {
        const enum head_step tag = pass(h, form->begins[i]);
        if (tag != HEAD_FAILS)
            return tag;
    }
    h->at = at;
    return step == HEAD_OK ? HEAD_FAILS : step;
}

/* The length of the first tag, which becomes text if no head follows. */
static size_t first_tag(const struct tool_work *w, const struct tool_form *form)
{
    const char *const tags[] = {form->lead, form->begins[0], form->begins[1]};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (tags[i] && tool_match(w->held.data, w->held.n, 0, tags[i]) == TOOL_MATCH_ALL)
            return strlen(tags[i]);
    return w->held.n;
}

/* mistral: a list of objects. */
static enum head_step pass_list(struct tool_work *w, struct head *h)
{
    struct head list = *h;
    enum head_step step = pass(&list, "[");
    if (step == HEAD_OK)
        step = pass(&list, "{");
    if (step != HEAD_OK)
        return step;
    w->in_array = true;
    w->at = list.at - 1;
    return HEAD_OK;
}

bool tool_named_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const struct tool_form *form = tool_form(p->format);
    const size_t n = w->held.n < TOOL_MAX_HEAD ? w->held.n : TOOL_MAX_HEAD;
    struct head h = {w->held.data, n, 0, !over && n < TOOL_MAX_HEAD};
    struct tool_call call = {0};
    enum head_step step = pass_tags(form, &h);
    if (step == HEAD_OK && p->format == TOOL_MISTRAL) {
        step = pass_list(w, &h);
        if (step == HEAD_OK)
            return true;
        if (step == HEAD_FAILS)
            step = read_mistral(&h, &call);
    } else if (step == HEAD_OK) {
        step = read_name(p, &h, &call);
    }
    if (step == HEAD_OK)
        step = pass_optional(&h, form->fence);
    if (step == HEAD_OK)
        step = pass(&h, "{");
    if (step == HEAD_WAITS)
        return false;
    if (step == HEAD_FAILS) {
        tool_give_up(p, first_tag(w, form), sink);
        return true;
    }
    tool_begin_call(w, &call, sink);
    tool_drop(w, h.at - 1, TOOL_ARGUMENTS);
    tool_value_begin(&w->object.value);
    return true;
}
