/* How a command begins and ends: from its arguments to a result on standard output or one line on
 * standard error. Main thread. */
#ifndef QUIRE_TOOLS_COMMAND_H
#define QUIRE_TOOLS_COMMAND_H

#include "tools/cli/cli.h"

#include <jansson.h>
#include <stdbool.h>

/* Reads the command line. True: the command runs. False: it is over, and *code is the exit status; help
 * was asked for and printed, or the command line was wrong and that was said. */
bool command_begin(const struct cli_command *command, int argc, char **argv, int *code);

/* Prints "quire: text" on standard error, or a line of the log where that is JSON, and returns code. */
int command_fail(int code, const char *text);

/* One JSON object and a newline on standard output. Takes the reference. Returns the exit status. */
int command_print_json(json_t *object);

#endif
