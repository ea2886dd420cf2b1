/* A line on standard error that a program draws again and again, such as a progress bar. Main thread. */
#ifndef QUIRE_APP_COMMAND_STATUS_LINE_H
#define QUIRE_APP_COMMAND_STATUS_LINE_H

#include <stdbool.h>

/* Whether standard error is a terminal that can erase a line: not with TERM=dumb. */
bool status_line_possible(void);
/* Replaces the line. text: ASCII. Cut to the width of the terminal: of a longer line, the beginning would stay. */
void status_line_draw(const char *text);
void status_line_clear(void);

#endif
