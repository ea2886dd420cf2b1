/* The message about a command that does not exist. Main thread. */
#ifndef QUIRE_APP_COMMAND_UNKNOWN_H
#define QUIRE_APP_COMMAND_UNKNOWN_H

#include "base/encoding/suggest.h"

#include <stdbool.h>

/* One line on standard error for an unknown subcommand, with the suggestion if there is one. what: "command";
 * prefix: "quire bench ". Returns the exit status 2. */
int suggest_unknown(const struct suggest *s, const char *what, const char *prefix);

/* Like suggest_unknown() of argv[0], for a command that comes in several actions or parts: begin, try each name, end. If
 * argv[1] is a name, the two are swapped, and the message says so. Borrows argv. */
struct unknown_name {
    struct suggest near;
    const char *next; /* argv[1], or NULL if the command line ends before it */
    bool is_swapped;
};
struct unknown_name unknown_begin(int argc, char **argv);
void unknown_try(struct unknown_name *u, const char *name);
int unknown_end(const struct unknown_name *u, const char *what, const char *prefix);

#endif
