/* A question on the terminal that takes yes or no. Main thread. */
#ifndef QUIRE_APP_COMMAND_ASK_H
#define QUIRE_APP_COMMAND_ASK_H

#include <stdbool.h>

enum command_answer { COMMAND_YES, COMMAND_NO, COMMAND_NO_TERMINAL };

/* Asks on standard error and reads a line from standard input. An empty line is `preferred`; the end of input is no.
 * COMMAND_NO_TERMINAL: one of the two is not a terminal, and nothing was asked. */
enum command_answer command_ask(const char *question, bool preferred);

#endif
