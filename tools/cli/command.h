/* How a command ends: with a result on standard output or one line on standard error. */
#ifndef QUIRE_TOOLS_COMMAND_H
#define QUIRE_TOOLS_COMMAND_H

#include <jansson.h>

/* Prints "quire: text" on standard error, or a line of the log where that is JSON, and returns code. */
int command_fail(int code, const char *text);

/* One JSON object and a newline on standard output. Takes the reference. Returns the exit status. */
int command_print_json(json_t *object);

#endif
