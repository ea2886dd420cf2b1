/* The command line of the engine's process under --restart: quire engine MODEL, with the engine's options of this command
 * line. Main thread. */
#ifndef QUIRE_APP_SERVE_ENGINE_ARGV_H
#define QUIRE_APP_SERVE_ENGINE_ARGV_H

#include "app/command/cli.h"
#include "app/serve/serve_flags.h"

/* rows[n_rows]: the engine's options among the command's. The caller frees the array *out; its strings are borrowed. */
int engine_argv_make(const struct serve_settings *says, const struct cli_command *command, int argc, char **argv,
                     const struct cli_option *rows, size_t n_rows, char ***out, struct quire_error *err);

#endif
