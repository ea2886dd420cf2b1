/* Options of vLLM, SGLang and llama.cpp that Quire does not have. They are accepted if they ask for Quire's normal
 * behaviour. Otherwise they are an error that names Quire's option, or says "not supported yet". */
#ifndef QUIRE_APP_COMMAND_FOREIGN_FLAGS_H
#define QUIRE_APP_COMMAND_FOREIGN_FLAGS_H

#include "app/command/cli.h"

/* For the commands with engine_flags(); ends with names = NULL. */
extern const struct cli_foreign foreign_flags[];

/* Options of other engines for MODEL. */
#define FOREIGN_MODEL_NAMES "model,model-path,model-id,m"

#endif
