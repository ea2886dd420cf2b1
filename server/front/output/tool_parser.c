#include "server/front/output/tool_parser.h"

#include <jansson.h>
#include <string.h>

/* Maximum number of calls with an unterminated string after which the following text is parsed again. Each costs as
 * much as all text that follows. */
#define MAX_REREADS 16
/* The rest is moved down after each tag: with a megabyte of tags in one piece, this would stop the loop for 1.5 s. In
 * slices of this size it takes 5 ms. */
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

/* ---- the text of a call ---------------------------------------------------------------------
 * A model wrote it, so it may be cut or be no JSON: what counts is where its strings and braces are. */

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

/* Each returns n if the value that begins at `at` does not end. */
static size_t skip_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

static size_t skip_nested(const char *text, size_t n, size_t at, char open, char close)
{
    size_t depth = 0;
    while (at < n) {
        const char c = text[at];
        at = c == '"' ? skip_string(text, n, at) : at + 1;
        depth += c == open;
        if (c == close && --depth == 0)
            return at;
    }
    return n;
}

static size_t skip_value(const char *text, size_t n, size_t at)
{
    const char c = at < n ? text[at] : ',';
    if (c == '"')
        return skip_string(text, n, at);
    if (c == '{' || c == '[')
        return skip_nested(text, n, at, c, c == '{' ? '}' : ']');
    const size_t from = at;
    while (at < n && text[at] != ',' && text[at] != '}')
        at++;
    while (at > from && is_blank(text[at - 1]))
        at--;
    return at;
}

/* The parts of a call. If two members have the same name, the last one counts, as everywhere. */
enum { MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_PARAMETERS, N_MEMBERS };
struct span {
    const char *text;
    size_t n;
};

static void find_members(const char *text, size_t n, struct span out[N_MEMBERS])
{
    static const char *const names[N_MEMBERS] = {"\"name\"", "\"arguments\"", "\"parameters\""};
    size_t at = skip_blank(text, n, 1);
    while (at < n && text[at] == '"') {
        const size_t key = at, behind = skip_string(text, n, at), colon = skip_blank(text, n, behind);
        if (colon == n || text[colon] != ':')
            return;
        const size_t value = skip_blank(text, n, colon + 1), end = skip_value(text, n, value);
        for (size_t i = 0; i < N_MEMBERS; i++)
            if (behind - key == strlen(names[i]) && memcmp(text + key, names[i], behind - key) == 0)
                out[i] = (struct span){text + value, end - value};
        at = skip_blank(text, n, end);
        if (at == n || text[at] != ',')
            return;
        at = skip_blank(text, n, at + 1);
    }
}

/* Passes an object to the sink if it is a call: it has a name, and arguments that begin and are not a string. */
static bool give_call(const char *text, size_t n, const struct tool_sink *sink)
{
    struct span members[N_MEMBERS] = {{NULL, 0}};
    struct tool_call call;
    find_members(text, n, members);
    const struct span *arguments = &members[members[MEMBER_ARGUMENTS].n ? MEMBER_ARGUMENTS : MEMBER_PARAMETERS];
    json_t *name = json_loadb(members[MEMBER_NAME].text ? members[MEMBER_NAME].text : "", members[MEMBER_NAME].n,
                              JSON_DECODE_ANY, NULL);
    call.name = json_string_value(name);
    call.n_name = json_string_length(name);
    call.arguments = arguments->text;
    call.n_arguments = arguments->n;
    const bool is_call = call.n_name > 0 && arguments->n > 0 && arguments->text[0] != '"';
    if (is_call)
        sink->call(sink->context, &call);
    json_decref(name);
    return is_call;
}

/* ---- a forced call ---- */

/* Bytes of whole characters in the first n. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t lead = n;
    while (lead > 0 && n - lead < 3 && ((unsigned char)text[lead - 1] & 0xc0) == 0x80)
        lead--;
    const unsigned char c = lead > 0 ? (unsigned char)text[lead - 1] : 0;
    const size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return need > n - lead + 1 ? lead - 1 : n;
}

/* Its arguments have begun: the second brace was opened. Other arguments than objects are left to give_call(). */
static void begin_call(struct tool_parser *p, const struct tool_sink *sink)
{
    const char *text = p->held.data + p->object;
    const size_t n = p->at - p->object;
    struct span members[N_MEMBERS] = {{NULL, 0}};
    find_members(text, n, members);
    const struct span *arguments = &members[members[MEMBER_ARGUMENTS].n ? MEMBER_ARGUMENTS : MEMBER_PARAMETERS];
    json_t *name = json_loadb(members[MEMBER_NAME].text ? members[MEMBER_NAME].text : "", members[MEMBER_NAME].n,
                              JSON_DECODE_ANY, NULL);
    const struct tool_call call = {.name = json_string_value(name), .n_name = json_string_length(name)};
    if (call.n_name > 0 && arguments->n > 0 && arguments->text[0] == '{') {
        p->passed = (size_t)(arguments->text - p->held.data);
        sink->begin(sink->context, &call);
    }
    json_decref(name);
}

/* Passes on what is known of a forced call. */
static void pass_call(struct tool_parser *p, const struct tool_sink *sink)
{
    if (!p->is_forced || !sink->begin)
        return;
    if (p->passed == 0 && (p->depth >= 2 || p->arguments_end > 0))
        begin_call(p, sink);
    if (p->passed == 0)
        return;
    const size_t end = p->arguments_end ? p->arguments_end : whole_characters(p->held.data, p->at);
    if (end > p->passed) {
        sink->arguments(sink->context, p->held.data + p->passed, end - p->passed);
        p->passed = end;
    }
}

/* ---- output ---- */

/* Passes the first n held bytes to the sink as content. */
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

/* Removes the first n held bytes. */
static void drop(struct tool_parser *p, size_t n, enum tool_state state)
{
    if (n > 0)
        memmove(p->held.data, p->held.data + n, p->held.n - n);
    p->held.n -= n;
    p->at = p->object = p->passed = p->arguments_end = 0;
    p->depth = 0;
    p->in_string = p->is_escaped = false;
    p->state = state;
}

static void give_up(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    give_text(p, n, sink);
    drop(p, n, p->format == TOOL_HERMES ? TOOL_TEXT : TOOL_PLAIN);
}

/* ---- states: each returns whether the held text needs another step ---- */

/* Number of bytes at the end of the held text that may begin the words. */
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

/* At the start of a reply, or after the semicolon that follows a call: blanks, an optional tag, and an object. */
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

/* Returns whether the end tag is at p->at, as far as the text goes. */
static bool at_end_tag(const struct tool_parser *p)
{
    const char *end = forms[p->format].end;
    const size_t left = p->held.n - p->at, n_end = end ? strlen(end) : 0;
    return end && memcmp(p->held.data + p->at, end, left < n_end ? left : n_end) == 0;
}

/* The object ends before p->at. */
static bool end_object(struct tool_parser *p)
{
    p->end = p->at;
    p->state = TOOL_AFTER;
    return true;
}

/* From p->at: blanks and an object up to its end. It ends where its braces match, at an end tag outside a string, or
 * at the end of the text. */
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
        } else if (c == '{') {
            p->depth++;
        } else if (c == '}' && --p->depth == 0) {
            p->at++;
            return end_object(p);
        } else if (c == '}' && p->depth == 1) {
            p->arguments_end = p->at + 1;
        } else if (c == '<' && at_end_tag(p)) {
            return (over || n - p->at >= strlen(forms[p->format].end)) && end_object(p);
        }
    }
    pass_call(p, sink);
    if (over && p->is_stopped && p->passed == 0)
        give_up(p, n, sink);
    return over && (!p->is_stopped || p->passed > 0) && end_object(p);
}

static void take_call(struct tool_parser *p, size_t n, const struct tool_sink *sink)
{
    pass_call(p, sink);
    if (p->passed == 0 && !give_call(p->held.data + p->object, p->end - p->object, sink)) {
        give_up(p, p->end, sink);
        return;
    }
    buffer_clear(&p->blank);
    p->after_call = true;
    drop(p, n, p->format == TOOL_HERMES ? TOOL_TEXT : TOOL_AFTER);
}

/* After a hermes object: its end tag, which the end of the text may cut off. */
static bool after_object(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *end = forms[p->format].end;
    size_t n_end = strlen(end), from = skip_blank(p->held.data, p->held.n, p->end), n = p->held.n - from;
    if (n > 0 && p->passed == 0 && memcmp(p->held.data + from, end, n < n_end ? n : n_end) != 0)
        give_up(p, p->end, sink);
    else if (n >= n_end || over)
        take_call(p, n >= n_end ? from + n_end : p->held.n, sink);
    else
        return false;
    return p->held.n > 0;
}

/* After a llama object: the end, text, or a semicolon and another object. */
static bool after_llama(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    const char *text = p->held.data;
    if (p->end > 0) { /* it needs no end tag */
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

/* ---- public functions ---- */

bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink)
{
    for (size_t at = 0; at < n; at += SLICE_BYTES) {
        buffer_append(&p->held, text + at, n - at < SLICE_BYTES ? n - at : SLICE_BYTES);
        while (!p->held.failed && p->held.n > 0 && step(p, false, sink)) {
        }
    }
    return !p->held.failed && !p->blank.failed;
}

/* The text ended within a string of an object. If that string contains an end tag, the model forgot the quote: the
 * text after it is parsed again. Returns false if memory is out. */
static bool reread(struct tool_parser *p, const struct tool_sink *sink, bool *again)
{
    const char *end = forms[p->format].end, *found = NULL;
    if (p->state == TOOL_OBJECT && p->in_string && end && p->passed == 0)
        found = memmem(p->held.data + p->object, p->held.n - p->object, end, strlen(end));
    *again = found != NULL;
    if (!found)
        return true;
    struct buffer rest = {0};
    p->at = (size_t)(found - p->held.data);
    buffer_append(&rest, found, p->held.n - p->at);
    p->held.n = p->at;
    bool ok = !rest.failed && end_object(p) && tool_parser_push(p, rest.data, rest.n, sink);
    buffer_free(&rest);
    return ok;
}

bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink)
{
    bool again = true;
    if (p->held.failed || p->blank.failed)
        return false;
    for (size_t i = 0; i < MAX_REREADS && again; i++)
        if (!reread(p, sink, &again))
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
