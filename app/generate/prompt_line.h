/* Lines typed at a prompt, with editing and history (libedit) if the build found it; otherwise, and from a pipe, with
 * getline(). Main thread; one at a time: it handles SIGINT and SIGTERM while it waits, and then restores the handlers.
 */
#ifndef QUIRE_APP_GENERATE_PROMPT_LINE_H
#define QUIRE_APP_GENERATE_PROMPT_LINE_H

#include "base/status.h"

struct prompt_line;

enum prompt_line_end {
    PROMPT_LINE, /* *line is the text without its newline, valid until the next call */
    PROMPT_INTERRUPTED, /* Ctrl-C */
    PROMPT_END, /* Ctrl-D, the pipe's end, SIGTERM */
};

/* prompt: at most 15 bytes; printed on standard error, only on a terminal. */
int prompt_line_open(const char *prompt, struct prompt_line **out, struct quire_error *err);
enum prompt_line_end prompt_line_next(struct prompt_line *p, const char **line);
void prompt_line_close(struct prompt_line *p); /* NULL is allowed */

#endif
