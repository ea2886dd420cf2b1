/* The message about a command that does not exist. Main thread. */
#ifndef QUIRE_APP_COMMAND_UNKNOWN_H
#define QUIRE_APP_COMMAND_UNKNOWN_H

#include "base/encoding/suggest.h"

/* One line on standard error for an unknown subcommand, with the suggestion if there is one. what: "command";
 * prefix: "quire bench ". Returns the exit status 2. */
int suggest_unknown(const struct suggest *s, const char *what, const char *prefix);

#endif
