/* Lines that a person types at a prompt, with editing and a history of what was typed before (libedit) where the build
 * found it; else, and from a pipe, as the terminal and getline() have them. Main thread; one at a time: it takes SIGINT and SIGTERM
 * while it waits, and gives them back. */
#ifndef QUIRE_TOOLS_PROMPT_LINE_H
#define QUIRE_TOOLS_PROMPT_LINE_H

#include "base/status.h"

struct prompt_line;

enum prompt_line_end {
    PROMPT_LINE, /* *line is there, without its newline, until the next call */
    PROMPT_INTERRUPTED, /* Ctrl-C */
    PROMPT_END, /* Ctrl-D, the pipe's end, SIGTERM */
};

/* prompt: at most 15 bytes; it stands on standard error, and only where somebody types. */
int prompt_line_open(const char *prompt, struct prompt_line **out, struct quire_error *err);
enum prompt_line_end prompt_line_next(struct prompt_line *p, const char **line);
void prompt_line_close(struct prompt_line *p); /* NULL is fine */

#endif
