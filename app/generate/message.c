#include "app/generate/message.h"

#include <stdbool.h>
#include <string.h>

#define QUOTES "\"\"\""
#define FIRST "> "
#define NEXT "... "

/* The quotes at the end of a line, or NULL. Blanks may follow them. */
static const char *closing(const char *line)
{
    size_t n = strlen(line);
    while (n > 0 && strchr(" \t\n", line[n - 1]))
        n--;
    return n >= strlen(QUOTES) && memcmp(line + n - strlen(QUOTES), QUOTES, strlen(QUOTES)) == 0
               ? line + n - strlen(QUOTES)
               : NULL;
}

/* Returns whether the line begins a message in quotes. Pasted code may begin with a docstring and go on behind it. */
static bool is_opening(const char *line)
{
    const char *second = strncmp(line, QUOTES, strlen(QUOTES)) == 0 ? strstr(line + strlen(QUOTES), QUOTES) : line;
    return !second || (second != line && second == closing(line));
}

/* Up to the line that ends in """. line: the first one, without its quotes. */
static enum prompt_line_end read_quoted(struct prompt_line *p, const char *line, struct buffer *out)
{
    for (;;) {
        const char *end = closing(line);
        buffer_append(out, line, end ? (size_t)(end - line) : strlen(line));
        if (end)
            return PROMPT_LINE;
        if (out->n)
            buffer_append(out, "\n", 1);
        const enum prompt_line_end how = prompt_line_next(p, NEXT, &line);
        if (how == PROMPT_INTERRUPTED)
            return how;
        if (how == PROMPT_END)
            return PROMPT_LINE;
    }
}

enum prompt_line_end message_from_lines(struct prompt_line *p, struct buffer *out)
{
    const char *line;
    enum prompt_line_end how = prompt_line_next(p, FIRST, &line);
    if (how != PROMPT_LINE)
        return how;
    if (is_opening(line))
        return read_quoted(p, line + strlen(QUOTES), out);
    for (size_t n; (n = strlen(line)) > 0 && line[n - 1] == '\\';) {
        buffer_append(out, line, n - 1);
        buffer_append(out, "\n", 1);
        how = prompt_line_next(p, NEXT, &line);
        if (how == PROMPT_INTERRUPTED)
            return how;
        if (how == PROMPT_END)
            return PROMPT_LINE;
    }
    buffer_append(out, line, strlen(line));
    return PROMPT_LINE;
}
