/* The command line of a command that loads a model to run lines: its own options, and those of the model as quire serve has
 * them. Main thread.
 */
#ifndef QUIRE_APP_BULK_MODEL_FLAGS_H
#define QUIRE_APP_BULK_MODEL_FLAGS_H

#include "app/command/cli.h"

#include <stdbool.h>

struct model_flags {
    char **options; /* [n]: the model's, for place_options; strings of argv */
    size_t n;
};

/* command_begin() for command, whose options are set to own[n_own] and the model's. True: out needs model_flags_end(). */
bool model_flags_begin(const struct cli_command *command, const struct cli_option *own, size_t n_own, int argc,
                       char **argv, struct model_flags *out, int *code);
void model_flags_end(struct model_flags *f);

#endif
