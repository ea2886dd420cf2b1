/* The begin and end of a command: from its arguments to a result on standard output, or one line on standard error.
 * Main thread. */
#ifndef QUIRE_APP_COMMAND_COMMAND_H
#define QUIRE_APP_COMMAND_COMMAND_H

#include "app/command/cli.h"

#include <jansson.h>
#include <stdbool.h>

/* Reads the command line. Returns true if the command runs. Returns false with the exit status in *code after it
 * printed the help or an error. */
bool command_begin(const struct cli_command *command, int argc, char **argv, int *code);

/* Prints "quire: text" on standard error, or a log line if the log is JSON. Returns code. */
int command_fail(int code, const char *text);

/* Prints one JSON object and a newline on standard output. Takes the reference. Returns the exit status. */
int command_print_json(json_t *object);

/* Returns a JSON string of an argument or a path, with '?' for each byte that is not UTF-8; NULL without memory. */
json_t *command_json_text(const char *text);

#endif
