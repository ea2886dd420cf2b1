/* Lines typed at a prompt, with editing, bracketed paste and history (libedit) if the build found it; otherwise, and from
 * a pipe, with getline(). The history is kept in $XDG_STATE_HOME/quire/history, or ~/.local/state/quire/history. Main thread; one at a time: it handles SIGINT and SIGTERM while it waits, and then restores the handlers.
 */
#ifndef QUIRE_APP_GENERATE_PROMPT_LINE_H
#define QUIRE_APP_GENERATE_PROMPT_LINE_H

#include "base/status.h"

#include <stdbool.h>

struct prompt_line;

enum prompt_line_end {
    PROMPT_LINE, /* *line is the text without its last newline, valid until the next call; a paste has others */
    PROMPT_INTERRUPTED, /* Ctrl-C */
    PROMPT_END, /* Ctrl-D, the pipe's end, SIGTERM */
};

int prompt_line_open(struct prompt_line **out, struct quire_error *err);
/* prompt: at most 15 bytes; printed on standard error, only on a terminal. */
enum prompt_line_end prompt_line_next(struct prompt_line *p, const char *prompt, const char **line);
/* Whether anything was typed during the last prompt_line_next(). */
bool prompt_line_was_typed(const struct prompt_line *p);
void prompt_line_close(struct prompt_line *p); /* NULL is allowed */

#endif
