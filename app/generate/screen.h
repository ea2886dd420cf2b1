/* An answer on a terminal: lines broken between words, code blocks in another colour and never broken. Anything else than
 * a terminal gets the bytes unchanged. Main thread. */
#ifndef QUIRE_APP_GENERATE_SCREEN_H
#define QUIRE_APP_GENERATE_SCREEN_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct screen {
    FILE *out; /* borrowed */
    bool is_terminal, has_colours;
    size_t width, column, spaces; /* spaces: before the word, not yet written */
    bool line_has_words, in_code, on_fence;
    struct buffer word; /* not yet written */
};

/* Begins an answer. The width is that of the terminal, also after a change. NO_COLOR and TERM=dumb disable colours. A zeroed struct is closed. */
void screen_begin(struct screen *s, FILE *out);
/* text: whole UTF-8 characters. */
void screen_write(struct screen *s, const char *text, size_t n);
/* Writes what is left, and resets colours. */
void screen_end(struct screen *s);
void screen_close(struct screen *s);

/* A message to the user on standard error, broken between words in the same way. */
void screen_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
