#include "server/front/tools/reasoning_parser.h"

#include <string.h>

/* As in tool_parser.c: bounds the time of moving the rest down behind each tag. */
#define SLICE_BYTES 4096

/* ---- formats ---- */

static const char *const think_tags[] = {"<think>", "</think>", NULL};
static const char *const channel_tags[] = {"<|channel|>", "<|start|>",  "<|message|>",   "<|end|>",
                                           "<|call|>",    "<|return|>", "<|constrain|>", NULL};
static const struct form {
    const char *name;
    const char *const *tags;
} forms[N_REASONING_FORMATS] = {
    [REASONING_NONE] = {"none", NULL},
    [REASONING_DEEPSEEK_R1] = {"deepseek_r1", think_tags},
    [REASONING_QWEN3] = {"qwen3", think_tags},
    [REASONING_GLM45] = {"glm45", think_tags},
    [REASONING_OPENAI_GPTOSS] = {"openai_gptoss", channel_tags},
};

bool reasoning_format_find(const char *name, enum reasoning_format *out)
{
    for (size_t i = 0; i < N_REASONING_FORMATS; i++) {
        if (strcmp(name, forms[i].name) == 0) {
            *out = (enum reasoning_format)i;
            return true;
        }
    }
    return false;
}

const char *reasoning_format_name(enum reasoning_format format)
{
    return forms[format].name;
}

const char *reasoning_format_special(enum reasoning_format format, size_t i)
{
    return forms[format].tags ? forms[format].tags[i] : NULL;
}

/* ---- text ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool ends_with(const char *text, size_t n, const char *word)
{
    const size_t n_word = strlen(word);
    return n >= n_word && memcmp(text + n - n_word, word, n_word) == 0;
}

enum reasoning_place reasoning_place(enum reasoning_format format, const char *prompt_end, size_t n)
{
    if (forms[format].tags != think_tags)
        return REASONING_IS_BEFORE;
    while (n > 0 && is_blank(prompt_end[n - 1]))
        n--;
    if (ends_with(prompt_end, n, "</think>"))
        return REASONING_IS_OVER;
    return ends_with(prompt_end, n, "<think>") || format == REASONING_DEEPSEEK_R1 ? REASONING_IS_OPEN
                                                                                  : REASONING_IS_BEFORE;
}

/* Number of bytes at the end of the held text that may begin the word. */
static size_t begun(const struct reasoning_parser *p, const char *word)
{
    size_t n = strlen(word) - 1;
    if (n > p->held.n)
        n = p->held.n;
    while (n > 0 && memcmp(p->held.data + p->held.n - n, word, n) != 0)
        n--;
    return n;
}

/* Whether the word is at `at`, as far as the held text goes. *all: all of it. */
static bool is_at(const struct reasoning_parser *p, size_t at, const char *word, bool *all)
{
    const size_t n = strlen(word), left = p->held.n - at;
    *all = left >= n;
    return left == 0 || memcmp(p->held.data + at, word, *all ? n : left) == 0;
}

/* ---- output ---- */

static void drop(struct reasoning_parser *p, size_t n, enum reasoning_state state)
{
    if (n > 0)
        memmove(p->held.data, p->held.data + n, p->held.n - n);
    p->held.n -= n;
    p->has_begun &= p->state == state;
    p->state = state;
}

static void give(const struct reasoning_parser *p, const char *text, size_t n, const struct reasoning_sink *sink)
{
    if (n > 0)
        (p->state == REASONING_INSIDE ? sink->reasoning : sink->text)(sink->context, text, n);
}

/* ---- <think> ---- */

static bool think_start(struct reasoning_parser *p, bool over)
{
    size_t at = 0;
    bool all;
    while (at < p->held.n && is_blank(p->held.data[at]))
        at++;
    const bool may_be = is_at(p, at, think_tags[0], &all);
    if (may_be && !all && !over)
        return false;
    if (may_be && all) {
        drop(p, at + strlen(think_tags[0]), REASONING_INSIDE);
        return true;
    }
    drop(p, 0, REASONING_TEXT);
    p->has_begun = !p->has_form;
    return true;
}

/* Drops blanks behind a tag, and an open tag behind that of the prompt. Returns whether text follows. */
static bool begin(struct reasoning_parser *p, bool over)
{
    size_t at = 0;
    bool all;
    while (at < p->held.n && is_blank(p->held.data[at]))
        at++;
    drop(p, at, p->state);
    if (p->held.n == 0)
        return false;
    if (p->state == REASONING_INSIDE && is_at(p, 0, think_tags[0], &all)) {
        if (!all && !over)
            return false;
        if (all) {
            drop(p, strlen(think_tags[0]), p->state);
            return begin(p, over);
        }
    }
    p->has_begun = true;
    return true;
}

static bool think_inside(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    const char *close = think_tags[1];
    if (!p->has_begun && !begin(p, over))
        return false;
    const char *found = memmem(p->held.data, p->held.n, close, strlen(close));
    const size_t n = found ? (size_t)(found - p->held.data) : p->held.n - (over ? 0 : begun(p, close));
    size_t end = n;
    while (end > 0 && is_blank(p->held.data[end - 1]))
        end--;
    if (end > 0) {
        give(p, p->blank.data, p->blank.n, sink);
        buffer_clear(&p->blank);
        give(p, p->held.data, end, sink);
    }
    buffer_append(&p->blank, p->held.data + end, n - end);
    if (found) {
        buffer_clear(&p->blank);
        drop(p, n + strlen(close), REASONING_TEXT);
    } else {
        drop(p, n, REASONING_INSIDE);
    }
    return found != NULL;
}

static bool think_step(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    if (p->state == REASONING_START)
        return think_start(p, over);
    if (p->state == REASONING_INSIDE)
        return think_inside(p, over, sink);
    if (p->has_begun || begin(p, over)) {
        give(p, p->held.data, p->held.n, sink);
        drop(p, p->held.n, REASONING_TEXT);
    }
    return false;
}

/* ---- channels ---- */

static bool contains(const char *text, size_t n, const char *word)
{
    return memmem(text, n, word, strlen(word)) != NULL;
}

/* Between messages: a header, or text without one. */
static bool channel_start(struct reasoning_parser *p, bool over)
{
    bool all_channel, all_start;
    const bool channel = is_at(p, 0, "<|channel|>", &all_channel), start = is_at(p, 0, "<|start|>", &all_start);
    if (((channel && !all_channel) || (start && !all_start)) && !over)
        return false;
    drop(p, 0, (channel && all_channel) || (start && all_start) ? REASONING_HEADER : REASONING_TEXT);
    return true;
}

static bool channel_header(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    static const char tag[] = "<|message|>";
    const size_t n = p->held.n < REASONING_MAX_HEADER ? p->held.n : REASONING_MAX_HEADER;
    const char *text = p->held.data, *found = memmem(text, n, tag, sizeof tag - 1);
    if (!found && !over && n < REASONING_MAX_HEADER)
        return false;
    const size_t n_header = found ? (size_t)(found - text) + sizeof tag - 1 : 1;
    if (!found || contains(text, n_header, "to=functions.")) {
        give(p, text, n_header, sink);
        drop(p, n_header, found ? REASONING_CALL : REASONING_TEXT);
    } else {
        drop(p, n_header, contains(text, n_header, "<|channel|>analysis") ? REASONING_INSIDE : REASONING_TEXT);
    }
    return true;
}

/* In a message: its text up to a tag. */
static bool channel_message(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};
    const char *first = NULL;
    size_t n_end = 0, most = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *found = memmem(p->held.data, p->held.n, ends[i], strlen(ends[i]));
        const size_t n_begun = begun(p, ends[i]);
        most = n_begun > most ? n_begun : most;
        if (found && (!first || found < first)) {
            first = found;
            n_end = i < 3 ? strlen(ends[i]) : 0;
        }
    }
    const size_t n = first ? (size_t)(first - p->held.data) : p->held.n - (over ? 0 : most);
    give(p, p->held.data, p->state == REASONING_CALL ? n + n_end : n, sink);
    if (first && p->state != REASONING_INSIDE && sink->message_over)
        sink->message_over(sink->context);
    drop(p, n + n_end, first ? REASONING_START : p->state);
    return first != NULL;
}

static bool channel_step(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    if (p->state == REASONING_START)
        return channel_start(p, over);
    return p->state == REASONING_HEADER ? channel_header(p, over, sink) : channel_message(p, over, sink);
}

/* ---- public functions ---- */

static void steps(struct reasoning_parser *p, bool over, const struct reasoning_sink *sink)
{
    const bool channels = p->format == REASONING_OPENAI_GPTOSS;
    while (!p->held.failed && p->held.n > 0 && (channels ? channel_step(p, over, sink) : think_step(p, over, sink))) {
    }
}

bool reasoning_parser_push(struct reasoning_parser *p, const char *text, size_t n, const struct reasoning_sink *sink)
{
    for (size_t at = 0, end; at < n; at = end) {
        end = n - at < SLICE_BYTES ? n : at + SLICE_BYTES;
        for (int i = 0; i < 3 && end < n && ((unsigned char)text[end] & 0xc0) == 0x80; i++)
            end--;
        buffer_append(&p->held, text + at, end - at);
        steps(p, false, sink);
    }
    return !p->held.failed && !p->blank.failed;
}

bool reasoning_parser_finish(struct reasoning_parser *p, const struct reasoning_sink *sink)
{
    steps(p, true, sink);
    give(p, p->blank.data, p->blank.n, sink);
    return !p->held.failed && !p->blank.failed;
}

bool reasoning_parser_is_inside(const struct reasoning_parser *p)
{
    return p->state == REASONING_INSIDE;
}

void reasoning_parser_free(struct reasoning_parser *p)
{
    buffer_free(&p->held);
    buffer_free(&p->blank);
}
