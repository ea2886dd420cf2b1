/* A whole message from the lines of a terminal: one line, lines between """ and """, or lines that end in a backslash.
 * Main thread. */
#ifndef QUIRE_APP_GENERATE_MESSAGE_H
#define QUIRE_APP_GENERATE_MESSAGE_H

#include "app/generate/prompt_line.h"
#include "base/buffer.h"

/* Appends the message to *out, which is empty. PROMPT_INTERRUPTED: the message is discarded. PROMPT_END after the first
 * line: the message ends there, and PROMPT_LINE is returned. */
enum prompt_line_end message_from_lines(struct prompt_line *p, struct buffer *out);

#endif
