/* Calls in Python: a list of calls with keyword arguments, whose values are literals. They are written as JSON. */
#include "server/front/output/json_out.h"
#include "server/front/tools/tool_work.h"

#include <string.h>

enum place { AT_KEYWORD, AT_VALUE, AT_KEY, IN_STRING, AFTER_VALUE, AFTER_KEY };
enum token_step {
    TOKEN_OK,
    TOKEN_WAITS, /* for more text */
    TOKEN_FAILS, /* this is no literal */
    TOKEN_ENDS, /* the call is over */
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           (unsigned char)c >= 0x80;
}

/* ---- heads ---- */

static size_t skip_word(const char *text, size_t n, size_t at)
{
    while (at < n && is_word(text[at]))
        at++;
    return at;
}

/* Whether a keyword and = are here, or the end of a call without arguments. */
static enum token_step arguments_begin(const char *text, size_t n, size_t at, bool open)
{
    const enum token_step missing = open ? TOKEN_WAITS : TOKEN_FAILS;
    at = tool_skip_blank(text, n, at);
    if (at == n)
        return missing;
    if (text[at] == ')')
        return TOKEN_OK;
    const size_t word = at;
    at = skip_word(text, n, at);
    if (at < n && at == word)
        return TOKEN_FAILS;
    at = tool_skip_blank(text, n, at);
    if (at + 1 >= n)
        return missing;
    return text[at] == '=' && text[at + 1] != '=' ? TOKEN_OK : TOKEN_FAILS;
}

/* w->at: at the bracket of the list, or at the name of a further call. */
bool tool_python_head(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    const char *text = w->held.data;
    const size_t most = w->at + TOOL_MAX_HEAD, n = w->held.n < most ? w->held.n : most;
    const bool open = !over && n < most;
    const size_t name = tool_skip_blank(text, n, w->in_array ? w->at : w->at + 1), end = skip_word(text, n, name);
    const size_t bracket = tool_skip_blank(text, n, end);
    enum token_step step = open ? TOKEN_WAITS : TOKEN_FAILS;
    if (bracket < n)
        step = text[bracket] == '(' && end > name ? arguments_begin(text, n, bracket + 1, open) : TOKEN_FAILS;
    if (step == TOKEN_WAITS)
        return false;
    if (step == TOKEN_FAILS) {
        tool_give_up(p, w->held.n, sink);
        return false;
    }
    const struct tool_call call = {.name = text + name, .n_name = end - name};
    *w->python = (struct tool_python){.place = AT_KEYWORD};
    w->in_array = true;
    tool_begin_call(w, &call, sink);
    tool_drop(w, bracket + 1, TOOL_ARGUMENTS);
    json_out_raw(&w->out, "{");
    tool_flush_arguments(w, sink);
    return true;
}

/* ---- literals ---- */

static void put_comma(struct tool_work *w)
{
    if (w->python->comma)
        json_out_raw(&w->out, ", ");
    w->python->comma = false;
}

/* A value or a key has ended. */
static void end_item(struct tool_python *y, bool is_key)
{
    y->place = is_key ? AFTER_KEY : AFTER_VALUE;
    y->comma = !is_key;
}

static void put_word(struct tool_work *w, const char *text, size_t n, bool is_key)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words && !is_key; i++) {
        if (n == strlen(words[i][0]) && memcmp(text, words[i][0], n) == 0) {
            json_out_raw(&w->out, words[i][1]);
            return;
        }
    }
    if (!is_key && quire_json_is_pythons(text, n, 1))
        buffer_append(&w->out, text, n);
    else
        json_out_string(&w->out, text, n);
}

/* A number or a word: a sign, and letters and digits, also with the sign of an exponent. */
static size_t skip_literal(const char *text, size_t n, size_t at)
{
    const size_t from = at;
    for (; at < n; at++) {
        const bool sign = text[at] == '-' || text[at] == '+';
        const bool exponent = at > from && (text[at - 1] == 'e' || text[at - 1] == 'E');
        if (!is_word(text[at]) && !(sign && (at == from || exponent)))
            break;
    }
    return at;
}

static enum token_step open_bracket(struct tool_work *w, char c)
{
    struct tool_python *y = w->python;
    if (y->depth == TOOL_PYTHON_DEPTH || y->place == AT_KEY)
        return TOKEN_FAILS;
    y->stack[y->depth++] = c;
    y->place = c == '{' ? AT_KEY : AT_VALUE;
    y->comma = false;
    json_out_raw(&w->out, c == '{' ? "{" : "[");
    return TOKEN_OK;
}

static enum token_step close_bracket(struct tool_work *w, char c)
{
    struct tool_python *y = w->python;
    const char open = c == '}' ? '{' : c == ']' ? '[' : '(';
    if (y->depth == 0 || y->stack[y->depth - 1] != open)
        return TOKEN_FAILS;
    y->depth--;
    json_out_raw(&w->out, c == '}' ? "}" : "]");
    end_item(y, false);
    return TOKEN_OK;
}

static enum token_step at_value(struct tool_work *w, size_t *at, bool over)
{
    struct tool_python *y = w->python;
    const char *text = w->held.data, c = text[*at];
    const bool is_key = y->place == AT_KEY;
    if (c == ']' || c == ')' || c == '}') { /* an empty list, or a comma at its end */
        (*at)++;
        return y->depth > 0 ? close_bracket(w, c) : TOKEN_FAILS;
    }
    if (c == '[' || c == '(' || c == '{') {
        put_comma(w);
        (*at)++;
        return open_bracket(w, c);
    }
    if (c == '"' || c == '\'') {
        put_comma(w);
        json_out_raw(&w->out, "\"");
        y->quote = c;
        y->comma = is_key; /* kept for the end of the string */
        y->place = IN_STRING;
        (*at)++;
        return TOKEN_OK;
    }
    const size_t end = skip_literal(text, w->held.n, *at);
    if (end == *at || end - *at > TOOL_MAX_HEAD)
        return TOKEN_FAILS;
    if (end == w->held.n && !over)
        return TOKEN_WAITS;
    put_comma(w);
    put_word(w, text + *at, end - *at, is_key);
    end_item(y, is_key);
    *at = end;
    return TOKEN_OK;
}

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!memchr("0123456789abcdefABCDEF", text[i], 22))
            return false;
    return true;
}

/* An escape of a string. */
static enum token_step put_escape(struct tool_work *w, size_t *at, bool over)
{
    const char *text = w->held.data + *at;
    const size_t n = w->held.n - *at;
    if (n < 2)
        return over ? TOKEN_FAILS : TOKEN_WAITS;
    const char c = text[1];
    const size_t n_hex = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    if (n < 2 + n_hex && !over)
        return TOKEN_WAITS;
    if (n_hex > 0 && n >= 2 + n_hex && is_hex(text + 2, n_hex)) {
        json_out_raw(&w->out, c == 'x' ? "\\u00" : "\\u");
        buffer_append(&w->out, text + 2, n_hex);
        *at += 2 + n_hex;
        return TOKEN_OK;
    }
    *at += 2;
    if (c == '\'' || memchr("\"\\nrtbf", c, 7)) {
        if (c != '\'')
            json_out_raw(&w->out, "\\");
        buffer_append(&w->out, &c, 1);
    } else if (c != '\n') { /* Python keeps the backslash of an unknown escape */
        json_out_raw(&w->out, "\\\\");
        *at -= 1;
    }
    return TOKEN_OK;
}

static enum token_step in_string(struct tool_work *w, size_t *at, bool over)
{
    struct tool_python *y = w->python;
    const char *text = w->held.data;
    const char special[] = {y->quote, '\\', '"'};
    size_t end = *at;
    while (end < w->held.n && (unsigned char)text[end] >= ' ' && !memchr(special, text[end], sizeof special))
        end++;
    if (end > *at) {
        buffer_append(&w->out, text + *at, end - *at);
        *at = end;
        return TOKEN_OK;
    }
    if (text[end] == '\\')
        return put_escape(w, at, over);
    (*at)++;
    if (text[end] == y->quote) {
        const bool is_key = y->comma;
        json_out_raw(&w->out, "\"");
        end_item(y, is_key);
    } else {
        struct buffer one = {0};
        json_out_string(&one, text + end, 1);
        if (!one.failed)
            buffer_append(&w->out, one.data + 1, one.n - 2);
        w->out.failed |= one.failed;
        buffer_free(&one);
    }
    return TOKEN_OK;
}

static enum token_step at_keyword(struct tool_work *w, size_t *at, bool over)
{
    const char *text = w->held.data;
    const size_t n = w->held.n, end = skip_word(text, n, *at), equals = tool_skip_blank(text, n, end);
    if (text[*at] == ')') {
        (*at)++;
        return TOKEN_ENDS;
    }
    if ((end == *at && end < n) || equals - *at > TOOL_MAX_HEAD)
        return TOKEN_FAILS;
    if (equals == n)
        return over ? TOKEN_FAILS : TOKEN_WAITS;
    if (text[equals] != '=')
        return TOKEN_FAILS;
    put_comma(w);
    json_out_string(&w->out, text + *at, end - *at);
    json_out_raw(&w->out, ": ");
    w->python->place = AT_VALUE;
    *at = equals + 1;
    return TOKEN_OK;
}

static enum token_step after_value(struct tool_work *w, size_t *at)
{
    struct tool_python *y = w->python;
    const char c = w->held.data[*at];
    (*at)++;
    if (c == ',') {
        y->place = y->depth == 0 ? AT_KEYWORD : y->stack[y->depth - 1] == '{' ? AT_KEY : AT_VALUE;
        return TOKEN_OK;
    }
    if (c == ')' && y->depth == 0)
        return TOKEN_ENDS;
    return c == ')' || c == ']' || c == '}' ? close_bracket(w, c) : TOKEN_FAILS;
}

static enum token_step after_key(struct tool_work *w, size_t *at)
{
    if (w->held.data[*at] != ':')
        return TOKEN_FAILS;
    json_out_raw(&w->out, ": ");
    w->python->place = AT_VALUE;
    (*at)++;
    return TOKEN_OK;
}

static enum token_step next_token(struct tool_work *w, size_t *at, bool over)
{
    if (w->python->place == IN_STRING)
        return in_string(w, at, over);
    *at = tool_skip_blank(w->held.data, w->held.n, *at);
    if (*at == w->held.n)
        return TOKEN_OK;
    switch ((enum place)w->python->place) {
    case AT_KEYWORD: return at_keyword(w, at, over);
    case AFTER_VALUE: return after_value(w, at);
    case AFTER_KEY: return after_key(w, at);
    case AT_VALUE:
    case AT_KEY:
    case IN_STRING: break;
    }
    return at_value(w, at, over);
}

bool tool_python_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink)
{
    struct tool_work *w = p->work;
    size_t at = 0, done = 0;
    enum token_step step = TOKEN_OK;
    while (step == TOKEN_OK && at < w->held.n) {
        step = next_token(w, &at, over);
        if (step == TOKEN_OK || step == TOKEN_ENDS)
            done = at;
    }
    if (step == TOKEN_ENDS)
        json_out_raw(&w->out, "}");
    tool_flush_arguments(w, sink);
    if (step == TOKEN_OK || step == TOKEN_WAITS) {
        tool_drop(w, done, TOOL_ARGUMENTS);
        return false;
    }
    tool_end_call(w, sink);
    if (step == TOKEN_FAILS)
        w->in_array = false;
    tool_drop(w, done, step == TOKEN_ENDS ? TOOL_AFTER : TOOL_PLAIN);
    return true;
}
