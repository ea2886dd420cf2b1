#include "app/generate/screen.h"

#include "base/encoding/utf8.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define CODE_COLOUR "\033[36m"
#define NO_COLOUR "\033[0m"
#define LEAST_WIDTH 20 /* narrower terminals break lines themselves */

/* The window may have changed since the last call. A terminal then breaks its current line anew. */
static void read_width(struct screen *s)
{
    struct winsize size = {0};
    if (ioctl(fileno(s->out), TIOCGWINSZ, &size) != 0)
        return;
    const size_t width = size.ws_col >= LEAST_WIDTH ? size.ws_col : 0;
    if (width && width != s->width)
        s->column %= width;
    s->width = width;
}

void screen_begin(struct screen *s, FILE *out)
{
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    const bool is_terminal = isatty(fileno(out));
    struct buffer word = s->word;
    *s = (struct screen){.out = out, .is_terminal = is_terminal, .word = word};
    buffer_clear(&s->word);
    if (!is_terminal)
        return;
    setlocale(LC_CTYPE, "C.UTF-8"); /* for wcwidth() */
    s->has_colours = term && strcmp(term, "dumb") != 0 && (!none || !*none);
}

static size_t width_of(const char *character, size_t n)
{
    wchar_t wide;
    mbstate_t state = {0};
    if (mbrtowc(&wide, character, n, &state) > n)
        return 1;
    const int width = wcwidth(wide);
    return width > 0 ? (size_t)width : 0;
}

static size_t word_width(const struct buffer *word)
{
    size_t width = 0;
    for (size_t i = 0, n; i < word->n; i += n) {
        n = utf8_character((const uint8_t *)word->data + i, word->n - i);
        n = n ? n : 1;
        width += width_of(word->data + i, n);
    }
    return width;
}

static void flush_word(struct screen *s)
{
    if (s->word.n == 0 || s->word.failed)
        return;
    const size_t width = word_width(&s->word);
    if (!s->line_has_words && s->word.n >= 3 && memcmp(s->word.data, "```", 3) == 0) {
        if (!s->in_code && s->has_colours)
            fputs(CODE_COLOUR, s->out);
        s->on_fence = true;
    }
    const bool wraps = s->width && !s->in_code && !s->on_fence && s->line_has_words &&
                       s->column + s->spaces + width > s->width;
    if (wraps) {
        fputc('\n', s->out);
        s->column = 0;
    } else {
        fprintf(s->out, "%*s", (int)s->spaces, "");
        s->column += s->spaces;
    }
    s->spaces = 0;
    fwrite(s->word.data, 1, s->word.n, s->out);
    s->column += width;
    s->line_has_words = true;
    buffer_clear(&s->word);
}

static void end_line(struct screen *s)
{
    flush_word(s);
    if (s->on_fence) {
        s->in_code = !s->in_code;
        if (!s->in_code && s->has_colours)
            fputs(NO_COLOUR, s->out);
    }
    s->on_fence = s->line_has_words = false;
    s->column = s->spaces = 0;
}

void screen_write(struct screen *s, const char *text, size_t n)
{
    if (!s->is_terminal) {
        fwrite(text, 1, n, s->out);
        fflush(s->out);
        return;
    }
    read_width(s);
    for (size_t i = 0, length; i < n; i += length) {
        length = utf8_character((const uint8_t *)text + i, n - i);
        length = length ? length : 1;
        const unsigned char first = (unsigned char)text[i];
        if (first == '\n') {
            end_line(s);
            fputc('\n', s->out);
        } else if (first == ' ') {
            flush_word(s);
            s->spaces++;
        } else if (first < 0x20 && first != '\t') {
            continue; /* an answer cannot control the terminal */
        } else {
            /* Between wide characters a line may break anywhere. */
            const bool is_wide = length > 1 && width_of(text + i, length) > 1;
            if (is_wide)
                flush_word(s);
            buffer_append(&s->word, text + i, length);
            if (is_wide)
                flush_word(s);
        }
    }
    fflush(s->out);
}

void screen_end(struct screen *s)
{
    if (!s->is_terminal)
        return;
    flush_word(s);
    if ((s->in_code || s->on_fence) && s->has_colours)
        fputs(NO_COLOUR, s->out);
    s->in_code = s->on_fence = false;
    fflush(s->out);
}

void screen_close(struct screen *s)
{
    buffer_free(&s->word);
}

void screen_notice(const char *format, ...)
{
    struct screen s = {0};
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int n = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (n < 0)
        return;
    screen_begin(&s, stderr);
    screen_write(&s, text, (size_t)n);
    screen_end(&s);
    screen_close(&s);
    free(text);
}
